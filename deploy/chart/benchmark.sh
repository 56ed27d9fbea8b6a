# Measures the plan, then compares the run with its history. Exit code 1: worse than before, or a limit is not met.
set -u
run_status=0
inferometer run "${PLAN:-/plan/plan.yaml}" ${URL:+--url "$URL"} --json > /tmp/run.json || run_status=$?
if [ ! -s /tmp/run.json ]; then
    inferometer notify --job "$JOB" --result failure --text "the benchmark failed with exit code $run_status"
    exit "$run_status"
fi
run=$(python -c 'import json; print(json.load(open("/tmp/run.json"))["run"]["id"])')
inferometer show "$run"
inferometer check "$run" && [ "$run_status" = 0 ]
