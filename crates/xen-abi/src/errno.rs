//! Errors of hypercalls (public/errno.h). A call returns them negated.

constants! {
    /// By the names of POSIX.
    number: i64 {
        EPERM = 1, "XEN_EPERM";
        ENOENT = 2, "XEN_ENOENT";
        ESRCH = 3, "XEN_ESRCH";
        EIO = 5, "XEN_EIO";
        ENXIO = 6, "XEN_ENXIO";
        E2BIG = 7, "XEN_E2BIG";
        ENOEXEC = 8, "XEN_ENOEXEC";
        EBADF = 9, "XEN_EBADF";
        ECHILD = 10, "XEN_ECHILD";
        EAGAIN = 11, "XEN_EAGAIN";
        ENOMEM = 12, "XEN_ENOMEM";
        EACCES = 13, "XEN_EACCES";
        EFAULT = 14, "XEN_EFAULT";
        EBUSY = 16, "XEN_EBUSY";
        EEXIST = 17, "XEN_EEXIST";
        EXDEV = 18, "XEN_EXDEV";
        ENODEV = 19, "XEN_ENODEV";
        ENOTDIR = 20, "XEN_ENOTDIR";
        EISDIR = 21, "XEN_EISDIR";
        EINVAL = 22, "XEN_EINVAL";
        ENFILE = 23, "XEN_ENFILE";
        EMFILE = 24, "XEN_EMFILE";
        ENOSPC = 28, "XEN_ENOSPC";
        EROFS = 30, "XEN_EROFS";
        EMLINK = 31, "XEN_EMLINK";
        EDOM = 33, "XEN_EDOM";
        ERANGE = 34, "XEN_ERANGE";
        EDEADLK = 35, "XEN_EDEADLK";
        ENAMETOOLONG = 36, "XEN_ENAMETOOLONG";
        ENOLCK = 37, "XEN_ENOLCK";
        ENOSYS = 38, "XEN_ENOSYS";
        ENOTEMPTY = 39, "XEN_ENOTEMPTY";
        ENODATA = 61, "XEN_ENODATA";
        ETIME = 62, "XEN_ETIME";
        EBADMSG = 74, "XEN_EBADMSG";
        EOVERFLOW = 75, "XEN_EOVERFLOW";
        EILSEQ = 84, "XEN_EILSEQ";
        ENOTSOCK = 88, "XEN_ENOTSOCK";
        EMSGSIZE = 90, "XEN_EMSGSIZE";
        EOPNOTSUPP = 95, "XEN_EOPNOTSUPP";
        EADDRINUSE = 98, "XEN_EADDRINUSE";
        EADDRNOTAVAIL = 99, "XEN_EADDRNOTAVAIL";
        ENOBUFS = 105, "XEN_ENOBUFS";
        EISCONN = 106, "XEN_EISCONN";
        ENOTCONN = 107, "XEN_ENOTCONN";
        ETIMEDOUT = 110, "XEN_ETIMEDOUT";
        ECONNREFUSED = 111, "XEN_ECONNREFUSED";
    }
}

pub use number::*;
