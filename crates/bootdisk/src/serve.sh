# Reads file systems of the disk /dev/vda for `bootdisk::served`, which says what is asked and answered.
while IFS= read -r verb && IFS= read -r word; do
    case $verb in
    mount)
        kind=${word% *} number=${word#* } options=ro,nodev,nosuid,noexec
        # Two file systems may be copies of each other.
        if [ "$kind" = xfs ]; then options=$options,nouuid; fi
        modprobe "$kind" >&2
        mkdir -p "/v/$number"
        # The reason is in the answer: this machine is ended before its standard error is written.
        if said=$(mount -t "$kind" -o "$options" "/dev/vda${number#0}" "/v/$number" 2>&1)
        then echo mounted
        else printf 'failed %.200s\n' "$(echo "$said" | tr '\n' ' ')"
        fi
        ;;
    stat) stat -c '%f %s' "$word" 2>/dev/null || echo - ;;
    link) readlink -n "$word"; printf '\0' ;;
    list) find "$word" -mindepth 1 -maxdepth 1 -print0; printf '\0' ;;
    # What is cut short can only be told by the end.
    read) cat "$word" || exit 1 ;;
    esac
done
