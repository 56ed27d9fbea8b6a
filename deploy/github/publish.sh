#!/usr/bin/env bash
# publish.sh BRANCH FOLDER RECORDS: commit what is new in FOLDER and push it; where another job was faster, after it.
set -euo pipefail
branch=$1 folder=$2 records=$3

cd "$folder"
{
  echo 'index.sqlite*' # made anew from the runs
  echo 'calibration/'  # of one machine
  echo '.*.lock'
  echo '*.tmp'
  if [ "$records" != true ]; then
    echo 'records.parquet' # every request: too much for a branch, the numbers stay
    echo 'samples.parquet'
    echo '*.log'
  fi
} > .gitignore
git add --all
if git diff --cached --quiet; then
  echo "nothing new to publish"
  exit 0
fi
git -c user.name='GitHub Action' -c user.email='action@github.com' commit --quiet \
  --message "Add benchmark data for $(date -u +'%Y-%m-%d %H:%M:%S') UTC"
for attempt in 1 2 3 4 5; do
  if git push --quiet origin "HEAD:refs/heads/$branch"; then
    echo "published to $branch"
    exit 0
  fi
  sleep "$attempt"
  git fetch --quiet origin "+refs/heads/$branch:refs/inferometer/$branch"
  git -c user.name='GitHub Action' -c user.email='action@github.com' rebase --quiet "refs/inferometer/$branch" ||
    { git rebase --abort; echo "::error title=Inferometer::could not publish to $branch"; exit 1; }
done
echo "::error title=Inferometer::could not publish to $branch"
exit 1
