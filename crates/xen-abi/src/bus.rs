//! The life of a device's two halves, as the store tells it (public/io/xenbus.h).

constants! {
    /// The value of a key `state`.
    state: u32 {
        UNKNOWN = 0, "XenbusStateUnknown";
        INITIALISING = 1, "XenbusStateInitialising";
        INIT_WAIT = 2, "XenbusStateInitWait";
        INITIALISED = 3, "XenbusStateInitialised";
        CONNECTED = 4, "XenbusStateConnected";
        CLOSING = 5, "XenbusStateClosing";
        CLOSED = 6, "XenbusStateClosed";
        RECONFIGURING = 7, "XenbusStateReconfiguring";
        RECONFIGURED = 8, "XenbusStateReconfigured";
    }
}
