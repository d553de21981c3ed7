# Builds the kernel's self-tests, static, 64-bit and 32-bit: build.sh WORK OUT. As any user, installing
# nothing; needs apt and gcc 12.
set -eu
work=$1 out=$2
mkdir -p "$work" "$out"; cd "$work"
apt-get -q download linux-source-6.1 libc6-dev-i386 libc6-i386 lib32gcc-12-dev lib32gcc-s1
for package in lib*.deb; do dpkg-deb -x "$package" m32; done
dpkg-deb --fsys-tarfile linux-source-6.1_*.deb | tar -xO ./usr/src/linux-source-6.1.tar.xz |
    tar -xJ --strip-components=1 --wildcards '*/tools/testing/selftests/*' '*/tools/include/*' \
        '*/arch/x86/include/asm/desc_defs.h'
cd tools/testing/selftests
r=$work/m32/usr
m32="-m32 -B$r/lib32 -L$r/lib32 -B$r/lib/gcc/x86_64-linux-gnu/12 -L$r/lib/gcc/x86_64-linux-gnu/12/32
    -idirafter $r/include/x86_64-linux-gnu -idirafter /usr/include/x86_64-linux-gnu"
for file in x86/*.c; do
    n=$(basename "$file" .c)
    case $n in trivial*) continue ;; esac
    for bits in 64 32; do
        more= flags=
        [ $bits = 32 ] && flags=$m32
        case ${n}_$bits in
        sysret_ss_attrs_64) more=x86/thunks.S ;;
        ptrace_syscall_32) more=x86/raw_syscall_helper_32.S ;;
        test_syscall_vdso_32) more=x86/thunks_32.S ;;
        check_initial_reg_state_*) more=-Wl,-ereal_start ;;
        esac
        # Those of one width only fail in the other.
        gcc -static -s -O2 -std=gnu99 -pthread -no-pie -w -DCAN_BUILD_32 -DCAN_BUILD_64 $flags \
            -o "$out/${n}_$bits" "$file" $more -lrt -ldl -lm 2>/dev/null || echo "no ${n}_$bits"
    done
done
for file in timers/*.c membarrier/*.c futex/functional/*.c; do
    n=$(basename "$file" .c)
    gcc -static -s -O2 -w -D_GNU_SOURCE= -pthread -I. -Ifutex/include -o "$out/$n" "$file" -lrt -lm \
        2>/dev/null || echo "no $n"
done
for n in basic_test basic_percpu_ops_test param_test; do
    gcc -static -s -O2 -w -pthread -Irseq -I../../include -o "$out/rseq_$n" rseq/$n.c rseq/rseq.c
done
