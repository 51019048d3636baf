# Tells what a host is, in lines `gangline:KEY=VALUE`; needs nothing but a POSIX shell. Sent over SSH by probe.py, on whose
# side the first line's arrival is measured against this host's clock. Changes nothing.
say() { printf 'gangline:%s=%s\n' "$1" "$2"; }
first() { line=; { read -r line || [ -n "$line" ]; } <"$1" 2>/dev/null && printf %s "$line"; }

say now "$(date +%s.%N 2>/dev/null)"
say machine_id "$(first /etc/machine-id)"
say boot_id "$(first /proc/sys/kernel/random/boot_id)"
say hostname "$(first /proc/sys/kernel/hostname)"
say kernel "$(first /proc/sys/kernel/osrelease)"
say arch "$(uname -m)"
(
    . /etc/os-release 2>/dev/null
    say os "$ID"
    say release "$VERSION_ID"
    say system "$PRETTY_NAME"
)

# What a login without a terminal may do: root itself, or sudo that asks for nothing.
if [ "$(id -u)" = 0 ]; then
    say sudo ok
elif refusal=$(LC_ALL=C sudo -n true 2>&1); then
    say sudo ok
else
    say sudo "$(printf %s "$refusal" | tr '\n' ' ')"
fi

# The modules stand for a whole standard library: Debian's python3-minimal lacks them. Looked for, not loaded.
for python in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do
    command -v "$python" >/dev/null 2>&1 || continue
    found=$("$python" -I -S -c 'import sys
from importlib.machinery import PathFinder
lacking = [name for name in ("hashlib", "json", "sqlite3", "ssl") if PathFinder.find_spec(name) is None]
lacks = " without " + lacking[0] if lacking else ""
verdict = "" if lacking or sys.version_info < (3, 10) else " good"
print("%d.%d.%d" % sys.version_info[:3] + (lacks or verdict))' 2>/dev/null)
    [ -n "$found" ] && say python "$found"
    case $found in *" good") break ;; esac
done

for device in /sys/bus/pci/devices/*; do
    case $(first "$device/class") in
    0x0300*|0x0302*)
        vendor=$(first "$device/vendor")
        if [ "$vendor" = 0x10de ]; then
            model=$(first "$device/device")
            say gpu "${device##*/} ${vendor#0x}:${model#0x}"
        fi ;;
    esac
done
if [ -e /run/reboot-required ] || [ -e /var/run/reboot-required ]; then say reboot yes; fi
say end ok
