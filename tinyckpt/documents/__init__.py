"""File formats: graphs, schedules and traces as JSON; parameters; PyTorch's memory snapshots.

Readers accept files that anybody may have written: nothing in a file is executed, sizes are checked
before memory is allocated, and a damaged file is one FormatError that says where.
"""
