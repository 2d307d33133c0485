#!/usr/bin/env bash
# Makes a base image from Debian packages, for places where no image registry can be reached: debootstrap into a
# temporary directory, then `docker import`. It holds what the Dockerfile needs and no more: python3.11 with venv, and
# ca-certificates.
#
#   ops/docker/base-image.sh [--force] [TAG]        TAG: odradek-base:bookworm
#
# Does nothing when the image is there, unless --force is given. MIRROR names a Debian mirror, else
# debootstrap takes the one that it takes by default.
set -euo pipefail

tag=odradek-base:bookworm
force=false
mirror=${MIRROR:-}
suite=bookworm
for argument in "$@"; do
    case $argument in
        --force) force=true ;;
        -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
        -*) echo "base-image: unknown option $argument" >&2; exit 2 ;;
        *) tag=$argument ;;
    esac
done

fail() {
    echo "base-image: $1" >&2
    exit 1
}
command -v docker >/dev/null || fail "docker is not installed"
docker version >/dev/null 2>&1 || fail "no Docker daemon answers; ops/docker/ensure-docker.sh starts one"
if ! $force && docker image inspect "$tag" >/dev/null 2>&1; then
    echo "base-image: $tag is there already (--force makes it anew)"
    exit 0
fi
[ "$(id -u)" = 0 ] || fail "debootstrap needs root (it makes device nodes and changes its root); run this with sudo"
command -v debootstrap >/dev/null || fail "debootstrap is not installed; apt-get install debootstrap"

root=$(mktemp -d -t odradek-base.XXXXXXXX)
log=$(mktemp -t odradek-base.XXXXXXXX)
cleanup() {
    # A debootstrap that was interrupted leaves its /proc and /sys behind: never remove through a mount.
    for place in proc sys dev/pts dev; do
        if mountpoint -q "$root/$place"; then umount "$root/$place"; fi
    done
    rm -rf --one-file-system "$root" "$log"
}
trap cleanup EXIT

echo "base-image: installing Debian $suite with python3${mirror:+ from $mirror} (about a minute)"
debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates "$suite" "$root" ${mirror:+"$mirror"} >"$log" 2>&1 ||
    { tail -n 20 "$log" >&2; fail "debootstrap failed"; }
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/var/log/*
rm -rf "$root"/usr/share/{doc,man,info,locale}

tar -C "$root" --numeric-owner -c . | docker import \
    --platform "linux/$(dpkg --print-architecture)" \
    --message "Debian $suite with python3, made by odradek's base-image.sh" \
    --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
    --change 'ENV LANG=C.UTF-8' \
    --change 'CMD ["python3"]' \
    - "$tag" >/dev/null
size=$(docker image inspect --format '{{.Size}}' "$tag")
echo "base-image: made $tag, $((size / 1000000)) MB"
