"""The demo's matrix products run on one thread, as long as the demo runs."""

import pytest

from tests.conftest import lacking
from tinyckpt.base.blas_threads import VARIABLES, accessors, one_blas_thread


def test_one_thread_within_and_as_many_as_before_after(monkeypatch: pytest.MonkeyPatch) -> None:
    found = accessors()
    if found is None:
        lacking("the OpenBLAS that a wheel of NumPy brings")
    get, put = found
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    before = get()
    try:
        put(2)
        many = get()  # 2, or what the machine has
        with one_blas_thread():
            assert get() == 1
        assert get() == many
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
        with one_blas_thread():  # the user has decided
            assert get() == many
    finally:
        put(before)
