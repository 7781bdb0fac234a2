#!/usr/bin/env bash
# Installs a package, runs its service by the command line of its unit, removes and purges it. All of it happens on
# copies (overlays in memory) of /etc, /usr and /var that only this process sees:
#
#     unshare --mount tests/packages/deb.sh FOLDER PACKAGE
set -euo pipefail
folder=$1
package=$2

mount -t tmpfs none "$folder"
for tree in etc usr var; do
    mkdir "$folder/$tree.low" "$folder/$tree.up" "$folder/$tree.work"
    mount --bind "/$tree" "$folder/$tree.low"
    mount -t overlay overlay -o "lowerdir=/$tree,upperdir=$folder/$tree.up,workdir=$folder/$tree.work" "/$tree"
done
server=
finish() { [ -z "$server" ] || kill "$server" 2>/dev/null || true; }
trap finish EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }

! dpkg-query --status waybill >/dev/null 2>&1 || fail "a package waybill is installed"
dpkg --install "$package"
dpkg --verify waybill
getent passwd waybill >/dev/null || fail "there is no user"
[ "$(stat --format=%a:%U /etc/waybill/waybill.env)" = 600:root ] || fail "others may read the settings"

unit=/lib/systemd/system/waybill.service
systemd-analyze verify --man=no "$unit" || fail "systemd does not like the unit"
systemd-analyze security --offline=true --threshold=30 "$unit" >"$folder/security" || { cat "$folder/security"; fail "exposed"; }

# What systemd would do.
of_unit() { sed -n "s/^$1=//p" "$unit"; }
user=$(of_unit User)
state=/var/lib/$(of_unit StateDirectory)
install -d -o "$user" -g "$(of_unit Group)" -m "$(of_unit StateDirectoryMode)" "$state"
sed -i 's/^WAYBILL_BIND=.*/WAYBILL_BIND=127.0.0.1:0/' /etc/waybill/waybill.env
settings=$(of_unit EnvironmentFile)
mapfile -t environment < <(of_unit Environment; grep -v '^#' "${settings#-}" | grep =)
read -ra command <<<"$(of_unit ExecStart)"
touch "$folder/out" "$folder/err"
env -i PATH=/usr/bin:/bin "${environment[@]}" setpriv --reuid "$user" --regid "$(of_unit Group)" --init-groups \
    --no-new-privs --bounding-set -all "${command[@]}" >"$folder/out" 2>"$folder/err" &
server=$!
for _ in $(seq 600); do
    grep -q 'listening on' "$folder/out" && break
    kill -0 "$server" 2>/dev/null || { cat "$folder/err" >&2; fail "the service has ended"; }
    sleep 0.1
done
url=$(sed -n 's/^waybill is listening on //p' "$folder/out")
curl --silent --fail "$url/ready" | grep -q '"ready"' || fail "not ready"
curl --silent --fail --json '{"title": "a job", "tags": "a"}' "$url/events" | grep -q '"id":' || fail "no event"
# Root makes a key, and a backup, while the service runs as another user.
waybill keys create --bootstrap --name ops | grep -q '^wb_' || fail "no key"
waybill backup /var/lib/waybill.backup
rm /var/lib/waybill.backup
kill -TERM "$server"
wait "$server" || { cat "$folder/err" >&2; fail "it did not stop cleanly"; }
server=
[ "$(stat --format=%U "$state/postgres")" = "$user" ] || fail "the data belongs to another user"

dpkg --remove waybill
[ ! -e /usr/bin/waybill ] && [ ! -e "$unit" ] || fail "files are left after a removal"
[ -e "$state/postgres/PG_VERSION" ] && [ -e /etc/waybill/waybill.env ] || fail "a removal took data or settings"
dpkg --purge waybill
! getent passwd waybill >/dev/null || fail "the user is left"
! dpkg-query --status waybill >/dev/null 2>&1 || fail "the package is still known"

# Whatever is new now, except the copies that dpkg and adduser keep of files that they change.
left=$(for tree in etc usr var; do
    (cd "$folder/$tree.up" && find . -mindepth 1 ! -type c) | while read -r path; do
        [ -e "$folder/$tree.low/$path" ] || echo "/$tree/${path#./}"
    done
done | grep -Ev '^/var/lib/dpkg/.*-old$|^/etc/[a-z]+-$|^/var/cache/' || true)
[ -z "$left" ] || fail "left behind: $left"
echo "everything was as it should be"
