# Runs self-tests one after the other and says how each ended: guest.sh SECONDS NAME...
b=/bin/busybox
limit=$1
shift
$b ip link set lo up
cd /tmp
for name in "$@"; do
    begun=$($b cut -d' ' -f1 /proc/uptime)
    $b timeout -s KILL "$limit" "/tests/$name" >/tmp/log 2>&1 </dev/null
    status=$?
    # Some say a great deal.
    $b tail -n 200 /tmp/log | $b sed "s/^/LOG $name /"
    echo "RESULT $name $status $begun $($b cut -d' ' -f1 /proc/uptime)"
done
echo DONE
