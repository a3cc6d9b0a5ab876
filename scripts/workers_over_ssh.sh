#!/usr/bin/env bash
# Starts workers of one study on machines that are reached over ssh. They outlive this terminal and this machine.
#
#   export ELSA_STORAGE=postgresql://elsa:PASSWORD@db:5432/elsa
#   python -m study.launch --task mrpc --workers 0                                  # plan once, here
#   bash scripts/workers_over_ssh.sh gpu1 gpu2 -- mrpc-bert-base-grid                # run it there
#   python -m study.status --watch
#   bash scripts/workers_over_ssh.sh --stop gpu1 gpu2                               # release and end
#
# Each machine needs this project in $ELSA_FOLDER (elsa, in the home folder) with its .venv, as set up by
# scripts/setup.sh. Arguments after -- are those of `elsa work`: studies, and flags such as --workers or --model.
set -euo pipefail

stop=false
[ "${1:-}" = --stop ] && { stop=true; shift; }
hosts=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    hosts+=("$1")
    shift
done
[ "${1:-}" = -- ] && shift
folder=${ELSA_FOLDER:-elsa}
if [ ${#hosts[@]} -eq 0 ]; then
    echo "usage: $0 [--stop] HOST... -- STUDY... [FLAGS]" >&2
    exit 2
fi
if ! $stop && [ -z "${ELSA_STORAGE:-}" ]; then
    echo "$0: set ELSA_STORAGE to the database that all machines reach" >&2
    exit 2
fi

start='
cd "$folder" || exit 1
mkdir -p runs
log=runs/worker-$(date +%Y%m%d-%H%M%S).log
nohup .venv/bin/python -m study.work "$@" >"$log" 2>&1 </dev/null &
echo $! >runs/worker.pid
# Until it says something or has ended: a slow file system takes its time to load Python.
for _ in $(seq 60); do
    sleep 0.5
    if [ -s "$log" ] || ! kill -0 "$(cat runs/worker.pid)" 2>/dev/null; then break; fi
done
sleep 0.5
if kill -0 "$(cat runs/worker.pid)" 2>/dev/null; then
    echo "process $(cat runs/worker.pid), log $folder/$log"
else
    tail -n 3 "$log"
fi'
end='
cd "$folder" || exit 1
kill -TERM "$(cat runs/worker.pid)" && echo "told to release its trials and end"'

failed=0
for host in "${hosts[@]}"; do
    if $stop; then
        remote="folder=$(printf %q "$folder"); $end"
    else
        remote="read -r ELSA_STORAGE; export ELSA_STORAGE; folder=$(printf %q "$folder"); set --"
        [ $# -gt 0 ] && remote+=" $(printf '%q ' "$@")"
        remote+=$start
    fi
    printf '%s: ' "$host"
    # The address goes over standard input: a password on a command line is there for all to read.
    # Not through a pipe: --stop does not read it, and whoever writes to a closed pipe fails.
    ${ELSA_SSH:-ssh -o BatchMode=yes} "$host" "$remote" <<< "${ELSA_STORAGE:-}" || failed=1
done
exit $failed
