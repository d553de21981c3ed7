//! Event channels (public/event_channel.h) and the events that come from Xen itself (public/xen.h).

constants! {
    /// Sub-commands of `event_channel_op`.
    command: u32 {
        BIND_INTERDOMAIN = 0, "EVTCHNOP_bind_interdomain";
        BIND_VIRQ = 1, "EVTCHNOP_bind_virq";
        BIND_PIRQ = 2, "EVTCHNOP_bind_pirq";
        CLOSE = 3, "EVTCHNOP_close";
        SEND = 4, "EVTCHNOP_send";
        STATUS = 5, "EVTCHNOP_status";
        ALLOC_UNBOUND = 6, "EVTCHNOP_alloc_unbound";
        BIND_IPI = 7, "EVTCHNOP_bind_ipi";
        BIND_VCPU = 8, "EVTCHNOP_bind_vcpu";
        UNMASK = 9, "EVTCHNOP_unmask";
        RESET = 10, "EVTCHNOP_reset";
        /// Linux uses bitmaps of two levels if there is no such call.
        INIT_CONTROL = 11, "EVTCHNOP_init_control";
        EXPAND_ARRAY = 12, "EVTCHNOP_expand_array";
        SET_PRIORITY = 13, "EVTCHNOP_set_priority";
    }
}

constants! {
    /// Virtual interrupts.
    virq: u32 {
        TIMER = 0, "VIRQ_TIMER";
        DEBUG = 1, "VIRQ_DEBUG";
        CONSOLE = 2, "VIRQ_CONSOLE";
        DOM_EXC = 3, "VIRQ_DOM_EXC";
        TBUF = 4, "VIRQ_TBUF";
        DEBUGGER = 6, "VIRQ_DEBUGGER";
        XENOPROF = 7, "VIRQ_XENOPROF";
        CON_RING = 8, "VIRQ_CON_RING";
        PCPU_STATE = 9, "VIRQ_PCPU_STATE";
        MEM_EVENT = 10, "VIRQ_MEM_EVENT";
        ARGO = 11, "VIRQ_ARGO";
        ENOMEM = 12, "VIRQ_ENOMEM";
        XENPMU = 13, "VIRQ_XENPMU";
        COUNT = 24, "NR_VIRQS";
    }
}

constants! {
    /// What a port is bound to.
    state: u32 {
        CLOSED = 0, "EVTCHNSTAT_closed";
        UNBOUND = 1, "EVTCHNSTAT_unbound";
        INTERDOMAIN = 2, "EVTCHNSTAT_interdomain";
        PIRQ = 3, "EVTCHNSTAT_pirq";
        VIRQ = 4, "EVTCHNSTAT_virq";
        IPI = 5, "EVTCHNSTAT_ipi";
    }
}

constants! {
    /// How many ports there can be.
    limit: u32 {
        TWO_LEVEL_PORTS = 4096, "EVTCHN_2L_NR_CHANNELS";
        FIFO_PORTS = 1 << 17, "EVTCHN_FIFO_NR_CHANNELS";
        FIFO_QUEUES = 16, "EVTCHN_FIFO_MAX_QUEUES";
    }
}

constants! {
    /// The word of an event with FIFO: a bit number each, but for the mask of the link.
    fifo: u32 {
        PENDING_BIT = 31, "EVTCHN_FIFO_PENDING";
        MASKED_BIT = 30, "EVTCHN_FIFO_MASKED";
        LINKED_BIT = 29, "EVTCHN_FIFO_LINKED";
        BUSY_BIT = 28, "EVTCHN_FIFO_BUSY";
        LINK_MASK = (1 << 17) - 1, "EVTCHN_FIFO_LINK_MASK";
        PRIORITY_HIGHEST = 0, "EVTCHN_FIFO_PRIORITY_MAX";
        PRIORITY_DEFAULT = 7, "EVTCHN_FIFO_PRIORITY_DEFAULT";
        PRIORITY_LOWEST = 15, "EVTCHN_FIFO_PRIORITY_MIN";
    }
}

structure! {
    /// A new port to which another domain may bind.
    AllocUnbound = "struct evtchn_alloc_unbound", 8 {
        domain: u16 = "dom" @ 0,
        remote_domain: u16 = "remote_dom" @ 2,
        port: u32 = "port" @ 4,
    }
}

structure! {
    /// A new port bound to another domain's unbound one.
    BindInterdomain = "struct evtchn_bind_interdomain", 12 {
        remote_domain: u16 = "remote_dom" @ 0,
        remote_port: u32 = "remote_port" @ 4,
        local_port: u32 = "local_port" @ 8,
    }
}

structure! {
    /// A new port bound to a virtual interrupt.
    BindVirq = "struct evtchn_bind_virq", 12 {
        /// One of [`virq`].
        virq: u32 = "virq" @ 0,
        vcpu: u32 = "vcpu" @ 4,
        port: u32 = "port" @ 8,
    }
}

structure! {
    /// A new port for interrupts between vCPUs.
    BindIpi = "struct evtchn_bind_ipi", 8 {
        vcpu: u32 = "vcpu" @ 0,
        port: u32 = "port" @ 4,
    }
}

structure! {
    /// Close a port.
    Close = "struct evtchn_close", 4 {
        port: u32 = "port" @ 0,
    }
}

structure! {
    /// Send an event.
    Send = "struct evtchn_send", 4 {
        port: u32 = "port" @ 0,
    }
}

structure! {
    /// Ask what a port is.
    Status = "struct evtchn_status", 24 {
        domain: u16 = "dom" @ 0,
        port: u32 = "port" @ 4,
        /// One of [`state`].
        state: u32 = "status" @ 8,
        vcpu: u32 = "vcpu" @ 12,
        /// The virtual or physical interrupt, or the other domain in its lower half.
        bound_to: u32 = "u.virq" @ 16,
        remote_port: u32 = "u.interdomain.port" @ 20,
    }
}

structure! {
    /// Say which vCPU a port notifies.
    BindVcpu = "struct evtchn_bind_vcpu", 8 {
        port: u32 = "port" @ 0,
        vcpu: u32 = "vcpu" @ 4,
    }
}

structure! {
    /// Unmask a port and deliver what is pending.
    Unmask = "struct evtchn_unmask", 4 {
        port: u32 = "port" @ 0,
    }
}

structure! {
    /// Close all ports.
    Reset = "struct evtchn_reset", 2 {
        domain: u16 = "dom" @ 0,
    }
}

structure! {
    /// Change to FIFO: where a vCPU's control block is.
    InitControl = "struct evtchn_init_control", 24 {
        frame: u64 = "control_gfn" @ 0,
        offset: u32 = "offset" @ 8,
        vcpu: u32 = "vcpu" @ 12,
        link_bits: u8 = "link_bits" @ 16,
        padding: [u8; 7] = "_pad" @ 17,
    }
}

structure! {
    /// One more page of event words.
    ExpandArray = "struct evtchn_expand_array", 8 {
        frame: u64 = "array_gfn" @ 0,
    }
}

structure! {
    /// In which queue a port's events wait.
    SetPriority = "struct evtchn_set_priority", 8 {
        port: u32 = "port" @ 0,
        priority: u32 = "priority" @ 4,
    }
}

structure! {
    /// The heads of a vCPU's queues.
    FifoControlBlock = "struct evtchn_fifo_control_block", 72 {
        ready: u32 = "ready" @ 0,
        reserved: u32 = "_rsvd" @ 4,
        heads: [u32; 16] = "head" @ 8,
    }
}
