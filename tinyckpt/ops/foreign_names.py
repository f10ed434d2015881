"""Names of PyTorch and JAX that tinyckpt lacks, and what to write instead.

Two tables of data: attributes of the package, such as ``vmap``, and of a traced value
(``x.backward()``). NumPy's names are in ``numpy_names``.
"""

from collections.abc import Mapping

ARRAYS = "arrays are NumPy's, as np.array(...)"
LAYERS = (
    "layers are functions of their parameters, as tc.layer_norm, tc.conv2d or x @ w + b; networks "
    "are in tc.networks"
)
LOOP = "write a Python loop: it is traced, as long as its length does not depend on values"
RETURNED = (
    "tc.value_and_grad(function)(parameters, ...) returns the value and the gradients; nothing is "
    "accumulated"
)
NESTED = "derivatives nest, as in tc.grad(tc.grad(f)); of several outputs, take them one by one"
CUSTOM = "tc.Primitive(..., vjp=...) has a rule of your own; call it by tc.apply"
BACKENDS = "backend='cupy' runs on a GPU"
NOTHING = (
    "only tc.value_and_grad, tc.grad and tc.train_step differentiate: call the function itself, or "
    "tc.jit of it; within a function, tc.stop_gradient(x)"
)

NAMES: Mapping[str, str] = {
    "Module": LAYERS,
    "Tensor": ARRAYS,
    "array": ARRAYS,
    "asarray": ARRAYS,
    "backward": RETURNED,
    "cond": "tc.where(condition, x, y) selects values; a Python if may read static=(...) arguments",
    "cuda": BACKENDS,
    "custom_jvp": CUSTOM,
    "custom_vjp": CUSTOM,
    "detach": "tc.stop_gradient(x)",
    "device": BACKENDS,
    "float32": "dtypes are NumPy's, as np.float32 or 'float32'",
    "float64": "dtypes are NumPy's, as np.float64 or 'float64'",
    "fori_loop": LOOP,
    "from_numpy": ARRAYS,
    "hessian": NESTED,
    "jacfwd": NESTED,
    "jacobian": NESTED,
    "jacrev": NESTED,
    "jvp": "there is reverse mode alone: tc.grad, or tc.gradients within a function",
    "make_jaxpr": "print(tc.build(function, *arguments)) shows the graph",
    "manual_seed": "tc.dropout takes a seed; draw parameters by np.random.default_rng(seed)",
    "nn": LAYERS,
    "no_grad": NOTHING,
    "numpy": "NumPy's functions take traced values, as np.tanh(x): docs/numpy.md lists them",
    "optim": "optimisers are tc.sgd, tc.momentum, tc.adam and tc.adamw; tc.train_step applies them",
    "pmap": "one process computes; tinyckpt pipe runs a pipeline of several",
    "random": "tc.dropout takes a seed; draw arrays by np.random.default_rng(seed), outside",
    "remat": "tc.checkpoint(function)",
    "scan": LOOP,
    "tensor": ARRAYS,
    "vjp": "tc.value_and_grad(function), or tc.gradients within a function",
    "vmap": "write the batch as an axis: operators broadcast, and x @ w takes leading axes",
    "while_loop": LOOP,
}

VAR_NAMES: Mapping[str, str] = {
    "at": "values never change: build a new one, as with tc.where",
    "backward": RETURNED,
    "cpu": BACKENDS,
    "cuda": BACKENDS,
    "detach": "tc.stop_gradient(x)",
    "device": BACKENDS,
    "double": "x.astype('float64')",
    "expand": "tc.broadcast_to(x, shape)",
    "float": "x.astype('float32')",
    "grad": RETURNED,
    "half": "x.astype('float16')",
    "numel": "x.size",
    "numpy": "while a function is traced, values have no numbers: return it, and it is an array",
    "permute": "x.transpose(axes)",
    "requires_grad": "wrt= of tc.value_and_grad says which arguments to differentiate",
    "requires_grad_": "wrt= of tc.value_and_grad says which arguments to differentiate",
    "softmax": "tc.softmax(x)",
    "to": "x.astype(dtype); " + BACKENDS,
    "type": "x.astype(dtype)",
    "unsqueeze": "tc.expand_dims(x, axis)",
    "view": "x.reshape(shape)",
    "zero_": "values never change: build a new one, as tc.zeros_like(x)",
}
