#!/bin/sh
# Builds static binaries into dist/, and Debian packages: build.sh OS/ARCH... [deb]
# The same commit gives the same bytes, wherever it is built.
set -eu
cd "$(dirname "$0")/.."
commit=${WEIR_COMMIT:-$(git rev-parse HEAD)}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
version=${WEIR_VERSION:-$(git describe --tags --match 'v[0-9]*' 2>/dev/null || echo "v0.0.0+$(echo "$commit" | cut -c1-12)")}
export SOURCE_DATE_EPOCH CGO_ENABLED=0
daemon=github.com/weir-agent/weir/cmd/weir/internal/daemon

tool=github.com/weir-agent/weir/cmd/weida/internal/cli

binary() { # OS ARCH: builds dist/weir-OS-ARCH and dist/weida-OS-ARCH
	GOOS=$1 GOARCH=$2 go build -trimpath -buildvcs=false -ldflags "-s -w -buildid= -X $daemon.release=$version -X $daemon.commit=$commit" -o "dist/weir-$1-$2" ./cmd/weir
	GOOS=$1 GOARCH=$2 go build -trimpath -buildvcs=false -ldflags "-s -w -buildid= -X $tool.release=$version -X $tool.commit=$commit" -o "dist/weida-$1-$2" ./cmd/weida
	echo "dist/weir-$1-$2 dist/weida-$1-$2"
}

package() { # ARCH: packs the binaries for linux and ARCH
	root=$(mktemp -d)
	trap 'rm -rf "$root"' EXIT
	install -d "$root/DEBIAN" "$root/usr/bin" "$root/usr/lib/systemd/system" "$root/usr/share/man/man1" "$root/usr/share/doc/weir" \
		"$root/usr/share/bash-completion/completions" "$root/usr/share/zsh/vendor-completions" "$root/usr/share/fish/vendor_completions.d"
	install -m 0755 "dist/weir-linux-$1" "$root/usr/bin/weir"
	install -m 0755 "dist/weida-linux-$1" "$root/usr/bin/weida"
	install -m 0644 deploy/systemd/*.service "$root/usr/lib/systemd/system/"
	install -m 0644 LICENSE "$root/usr/share/doc/weir/copyright"
	install -d -m 0755 "$root/etc/weir"
	# These run on the machine that builds.
	go run ./cmd/weir/internal/docgen -man "$root/usr/share/man/man1"
	gzip -n9 "$root"/usr/share/man/man1/*.1
	go run ./cmd/weir completion bash >"$root/usr/share/bash-completion/completions/weir"
	go run ./cmd/weir completion zsh >"$root/usr/share/zsh/vendor-completions/_weir"
	go run ./cmd/weir completion fish >"$root/usr/share/fish/vendor_completions.d/weir.fish"
	go run ./cmd/weir config init | awk '
		/^\[/ { section = $0 }
		section == "[wab]" && /^#dir =/ { $0 = "dir = \"/var/lib/weir\"" }
		section == "[socket]" && /^#path =/ { $0 = "path = \"/run/weir/weir.sock\"" }
		section == "[admin]" && /^#socket =/ { $0 = "socket = \"/run/weir/admin.sock\"" }
		{ print }' >"$root/etc/weir/weir.toml"
	chmod 0644 "$root/etc/weir/weir.toml"
	echo /etc/weir/weir.toml >"$root/DEBIAN/conffiles"
	for script in postinst prerm postrm; do
		install -m 0755 "deploy/deb/$script" "$root/DEBIAN/$script"
	done
	cat >"$root/DEBIAN/control" <<CONTROL
Package: weir
Version: $(echo "$version" | sed 's/^v//')
Architecture: $1
Maintainer: The weir authors <weir@localhost>
Section: net
Priority: optional
Depends: passwd
Recommends: ca-certificates
Installed-Size: $(du -ks "$root" | cut -f1)
Description: durable local write-ahead buffer
 Producers push records over a Unix socket and get an ack once a record is as
 safe as they asked for; weir ships the records to an HTTP endpoint, a weida
 broker, NATS, PostgreSQL, Kafka, S3 or a file, at least once, across crashes, full disks
 and outages. The broker and its tools are the command weida.
CONTROL
	find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
	dpkg-deb --root-owner-group -Zxz --build "$root" "dist/weir_$1.deb" >/dev/null
	echo "dist/weir_$1.deb"
}

mkdir -p dist
for target in "$@"; do
	case $target in
	deb-*) binary linux "${target#deb-}" && package "${target#deb-}" ;;
	*) binary "${target%/*}" "${target#*/}" ;;
	esac
done
