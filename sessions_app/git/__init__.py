"""Read files and commits of a repository with the git binary."""

from sessions_app.git.commits import (
    FirstCommit,
    Line,
    blame,
    count_commits,
    first_commits,
    last_changes,
    list_commits,
    read_changes,
    read_commit,
    read_commits,
)
from sessions_app.git.diffs import changes_since
from sessions_app.git.process import branch_work, list_files, path_in_worktree, top_of_worktree
