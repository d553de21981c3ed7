//! Privileges over the machine's devices (public/physdev.h), as far as a domain without devices asks for them.

use crate::Pfn;

constants! {
    /// Sub-commands of `physdev_op`.
    command: u32 {
        IRQ_STATUS_QUERY = 5, "PHYSDEVOP_irq_status_query";
        SET_IOPL = 6, "PHYSDEVOP_set_iopl";
        SET_IOBITMAP = 7, "PHYSDEVOP_set_iobitmap";
        EOI = 12, "PHYSDEVOP_eoi";
        PIRQ_EOI_GMFN_V1 = 17, "PHYSDEVOP_pirq_eoi_gmfn_v1";
        GET_FREE_PIRQ = 23, "PHYSDEVOP_get_free_pirq";
        PIRQ_EOI_GMFN_V2 = 28, "PHYSDEVOP_pirq_eoi_gmfn_v2";
    }
}

structure! {
    /// For [`command::SET_IOPL`].
    SetIopl = "struct physdev_set_iopl", 4 {
        level: u32 = "iopl" @ 0,
    }
}

structure! {
    /// For [`command::SET_IOBITMAP`].
    SetIobitmap = "struct physdev_set_iobitmap", 16 {
        bitmap: u64 = "bitmap" @ 0,
        ports: u32 = "nr_ports" @ 8,
    }
}

structure! {
    /// For [`command::PIRQ_EOI_GMFN_V2`].
    PirqEoiFrame = "struct physdev_pirq_eoi_gmfn", 8 {
        frame: Pfn = "gmfn" @ 0,
    }
}
