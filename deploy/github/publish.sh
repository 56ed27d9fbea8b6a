#!/usr/bin/env bash
# publish.sh BRANCH FOLDER RECORDS [SITE]: commit what is new in FOLDER and push it; where another job was faster, after it.
set -euo pipefail
branch=$1 folder=$2 records=$3 site=${4:-}
export GIT_AUTHOR_NAME='GitHub Action' GIT_AUTHOR_EMAIL='action@github.com'
export GIT_LITERAL_PATHSPECS=1 GIT_COMMITTER_NAME=$GIT_AUTHOR_NAME GIT_COMMITTER_EMAIL=$GIT_AUTHOR_EMAIL

commit() {
  git add --all
  ! git diff --cached --quiet || return 1
  git commit --quiet --message "Add benchmark data for $(date -u +'%Y-%m-%d %H:%M:%S') UTC"
}

# Their state, and over it the files that we added or changed: runs are in folders of their own, so nothing is lost; of
# what both wrote, which is the site and what people were notified of, the one is made anew and the other is ours.
after_theirs() {
  local ours
  ours=$(git rev-parse HEAD)
  git fetch --quiet origin "+refs/heads/$branch:refs/inferometer/$branch"
  git reset --quiet --hard "refs/inferometer/$branch"
  git diff-tree --root -r -z --name-only --no-commit-id --diff-filter=d "$ours" |
    git checkout --quiet "$ours" --pathspec-from-file=- --pathspec-file-nul
  [ -z "$site" ] || inferometer site --store . -o "$site" > /dev/null
}

cd "$folder"
{
  echo 'index.sqlite*' # made anew from the runs
  echo 'calibration/'  # of one machine
  echo '.*.lock'
  echo '*.tmp'
  [ "$records" = true ] || printf '%s\n' '*.log' 'log-*.bin'
} > .gitignore
# every request is too much for a branch: the numbers stay
[ "$records" = true ] || [ ! -d runs ] || inferometer store slim --all --store .
commit || { echo "nothing new to publish"; exit 0; }
for attempt in 1 2 3 4 5; do
  if git push --quiet origin "HEAD:refs/heads/$branch"; then
    echo "published to $branch"
    exit 0
  fi
  sleep "$attempt"
  after_theirs
  commit || true # it did arrive
done
echo "::error title=Inferometer::could not publish to $branch"
exit 1
