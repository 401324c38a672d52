#!/usr/bin/env bash
# The Prefect worker's container, of Compose and of KubeRay: the worker and its Ray node live and
# end together.  The addresses are in the environment; the image has this as /opt/raise/worker.sh.
set -eu

prefect --no-prompt work-pool create raise-pool --type process --overwrite
prefect --no-prompt deploy --prefect-file /opt/raise/prefect.yaml --all
raise-rpm watch
ray start --block --address="$RAY_ADDRESS" --num-cpus=0 --num-gpus=0 --object-store-memory=134217728 --disable-usage-stats --log-color=false &
node=$!
prefect worker start --pool raise-pool --limit 1 &
worker=$!
# The worker goes first: it cancels its run while Ray is there to be told.
stop() {
    kill -TERM "$worker" 2>/dev/null || true
    wait "$worker" || true
    kill -TERM "$node" 2>/dev/null || true
    wait "$node" || true
}
trap 'stop; exit 0' TERM
# Neither is of use without the other: the container starts anew.
while kill -0 "$node" && kill -0 "$worker"; do sleep 1 & wait $! || true; done
stop
exit 1
