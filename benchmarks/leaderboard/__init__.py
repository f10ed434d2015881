"""A leaderboard of rematerialization planners: published instances, one deadline, one processor.

``python -m benchmarks.leaderboard --data DIR --to FOLDER --table``
"""
