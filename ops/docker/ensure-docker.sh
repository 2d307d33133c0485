#!/usr/bin/env bash
# Runs a command on a machine that may have no Docker yet, with all that tests/containers needs:
#
#   ops/docker/ensure-docker.sh COMMAND [ARGUMENT...]
#
# Installs docker.io, docker-compose and debootstrap with apt-get where they are missing. Starts a daemon when none
# answers, and stops that one afterwards, never another. Makes a base image from Debian packages when python:3.11-slim
# cannot be pulled. Lets the build trust the certificates that this machine has in /usr/local/share/ca-certificates.
# COMMAND sees BASE_IMAGE, and ODRADEK_REQUIRE_DOCKER=1, with which a missing Docker is a failure and no skip.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -gt 0 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; }

say() { echo "ensure-docker: $1" >&2; }
compose_is_there() { docker compose version >/dev/null 2>&1 || command -v docker-compose >/dev/null; }

install() {
    say "installing $*"
    [ "$(id -u)" = 0 ] || { say "that needs root"; exit 1; }
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

install_packages() {  # only what is missing: Debian's Docker and Docker's own cannot stand side by side
    missing=()
    if ! docker version >/dev/null 2>&1 && ! command -v dockerd >/dev/null; then missing+=(docker.io); fi
    if ! compose_is_there; then missing+=(docker-compose); fi
    if [ ${#missing[@]} -gt 0 ]; then install "${missing[@]}"; fi
}

daemon=
daemon_log=
stop_daemon() {
    if [ -n "$daemon" ]; then
        say "stopping the daemon that this script started"
        kill "$daemon" 2>/dev/null || true
        wait "$daemon" 2>/dev/null || true
        rm -f "$daemon_log"
    fi
}
trap stop_daemon EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

start_daemon() {
    docker version >/dev/null 2>&1 && return
    say "no daemon answers: starting one"
    [ "$(id -u)" = 0 ] || { say "that needs root"; exit 1; }
    daemon_log=$(mktemp -t odradek-dockerd.XXXXXXXX)
    setsid dockerd >"$daemon_log" 2>&1 &
    daemon=$!
    for _ in $(seq 360); do
        docker version >/dev/null 2>&1 && return
        kill -0 "$daemon" 2>/dev/null || break
        sleep 0.5
    done
    tail -n 20 "$daemon_log" >&2
    say "the daemon did not start"
    exit 1
}

choose_base_image() {
    if [ -n "${BASE_IMAGE:-}" ]; then return; fi
    BASE_IMAGE=python:3.11-slim
    if ! docker image inspect "$BASE_IMAGE" >/dev/null 2>&1 && ! timeout 120 docker pull -q "$BASE_IMAGE" >/dev/null 2>&1; then
        say "$BASE_IMAGE cannot be pulled"
        BASE_IMAGE=odradek-base:bookworm
        command -v debootstrap >/dev/null || install debootstrap
        "$here/base-image.sh" "$BASE_IMAGE" >&2
    fi
}

trust_local_certificates() {
    for certificate in /usr/local/share/ca-certificates/*.crt; do
        if [ -e "$certificate" ]; then cp -u "$certificate" "$here/ca/"; fi
    done
}

install_packages
start_daemon
choose_base_image
trust_local_certificates
export BASE_IMAGE ODRADEK_REQUIRE_DOCKER=1
say "running with BASE_IMAGE=$BASE_IMAGE: $*"
status=0
"$@" || status=$?
exit "$status"
