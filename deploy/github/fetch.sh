#!/usr/bin/env bash
# fetch.sh BRANCH FOLDER: the branch that holds earlier runs, checked out into FOLDER; an empty one where there is none.
set -euo pipefail
branch=$1 folder=$2

git config --global --add safe.directory "$PWD" # a container's user does not own the checkout
git worktree prune
rm -rf "$folder"
git worktree prune
if git ls-remote --exit-code --heads origin "$branch" > /dev/null; then
  git fetch --quiet --depth 1 origin "+refs/heads/$branch:refs/inferometer/$branch"
  git worktree add --quiet --force --detach "$folder" "refs/inferometer/$branch"
else
  git worktree add --quiet --force --detach --no-checkout "$folder"
  git -C "$folder" checkout --quiet --orphan "inferometer-new-$$"
  git -C "$folder" rm -r --quiet --cached . > /dev/null 2>&1 || true
fi
git config --global --add safe.directory "$folder"
