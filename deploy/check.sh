#!/bin/sh
# Builds everything that is released and looks at it: static, reproducible, installs, starts, removes cleanly.
# The part with the package needs root on Debian, and is left out elsewhere (not with CI=true).
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null || true; rm -rf "$work"' EXIT
fail() {
	echo "deploy/check.sh: $1" >&2
	exit 1
}

deploy/build.sh linux/amd64 linux/arm64 darwin/arm64
export WEIR_COMMIT WEIR_VERSION SOURCE_DATE_EPOCH
WEIR_COMMIT=$(git rev-parse HEAD)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
mkdir "$work/tree"
git ls-files -z -co --exclude-standard | tar -c --null -T - | tar -x -C "$work/tree"
"$work/tree/deploy/build.sh" linux/amd64 linux/arm64 darwin/arm64 >/dev/null
for b in weir-linux-amd64 weir-linux-arm64 weir-darwin-arm64 weida-linux-amd64 weida-linux-arm64 weida-darwin-arm64; do
	cmp "dist/$b" "$work/tree/dist/$b" || fail "$b differs between two folders"
done
echo "the binaries of two folders are equal"
case $(uname -m) in x86_64) arch=amd64 ;; aarch64) arch=arm64 ;; *) arch= ;; esac
for b in weir weida; do
	"dist/$b-linux-$arch" version | grep -q "$WEIR_COMMIT" || fail "$b version does not say the commit"
done

if [ "$(id -u)" != 0 ] || ! command -v dpkg-deb >/dev/null || dpkg -s weir >/dev/null 2>&1; then
	[ "${CI:-}" = true ] && fail "the package cannot be tried: it needs root, dpkg and no installed weir"
	echo "left out, as it needs root, dpkg and no installed weir: that the package installs, starts and removes cleanly"
	exit 0
fi
deploy/build.sh deb-$arch >/dev/null
cp "dist/weir_$arch.deb" "$work/first.deb"
deploy/build.sh deb-$arch >/dev/null
cmp "dist/weir_$arch.deb" "$work/first.deb" || fail "the package differs between two builds"
before=$(find /etc /usr/bin /usr/lib/systemd /usr/share/man /var/lib -maxdepth 4 \( -name '*weir*' -o -name '*weida*' \) | sort)
dpkg -i "dist/weir_$arch.deb"
[ "$(stat -c '%U %a' /etc/weir/weir.toml)" = "root 640" ] || fail "the configuration can be read by everybody"
install -d -o weir -g weir -m 0755 /run/weir # as RuntimeDirectory does
if [ ! -d /run/systemd/system ]; then
	setpriv --reuid weir --regid weir --clear-groups /usr/bin/weir run --config /etc/weir/weir.toml 2>"$work/log" &
	pid=$!
fi
(cd "$work" && for i in $(seq 50); do /usr/bin/weir health >/dev/null 2>&1 && break || sleep 0.1; done
printf 'hello\n' | /usr/bin/weir push && /usr/bin/weir status) || fail "the daemon of the package does not work: $(cat "$work/log")"
[ "$(stat -c '%U %a' /run/weir/weir.sock)" = "weir 600" ] || fail "others may connect to the socket"
# The broker of the package takes what that weir could send it.
(cd "$work" && /usr/bin/weida broker config >broker.toml && /usr/bin/weida broker config --check broker.toml) || fail "the broker of the package does not work"
if [ -n "$pid" ]; then
	kill "$pid"
	wait "$pid" || fail "the daemon did not stop well: $(cat "$work/log")"
	pid=
fi
dpkg -r weir
[ -d /var/lib/weir ] || fail "removing the package removed its data"
rm -rf /var/lib/weir /run/weir
dpkg -P weir
after=$(find /etc /usr/bin /usr/lib/systemd /usr/share/man /var/lib -maxdepth 4 \( -name '*weir*' -o -name '*weida*' \) | sort)
[ "$before" = "$after" ] || fail "left behind after the purge: $after"
! getent passwd weir >/dev/null || fail "the user weir is still there"
echo "the package installs, starts, and leaves nothing behind"
