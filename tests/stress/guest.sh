# Runs stressors one after the other and says how each ended. busybox's shell runs it in the guest:
# seconds for each, the limit after which one is killed, then `NAME[@user][,--OPTION=VALUE...]`.
b=/bin/busybox
seconds=$1
limit=$2
shift 2
$b ip link set lo up
$b mkdir -p /tmp/work
$b chmod 777 /tmp /tmp/work
cd /tmp/work
for each in "$@"; do
    name=${each%%,*}
    options=$(echo "$each" | $b cut -s -d, -f2- | $b tr , ' ')
    shell="$b sh"
    case $name in
    *@user) shell="$b su -s /bin/busybox nobody -- sh" ;;
    esac
    name=${name%@user}
    line="stress-ng --$name 1 --timeout $seconds --verify --oomable --temp-path /tmp/work $options"
    begun=$($b cut -d' ' -f1 /proc/uptime)
    $b timeout -s KILL "$limit" $shell -c "exec $line" >/tmp/log 2>&1
    status=$?
    $b sed "s/^/LOG $name /" /tmp/log
    echo "RESULT $name $status $begun $($b cut -d' ' -f1 /proc/uptime)"
    $b killall -q -9 stress-ng
done
echo DONE
