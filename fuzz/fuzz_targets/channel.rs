//! Both directions of the guest channel: frames from any bytes, orders from any bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::{Decoder, Encoder, Order};

fuzz_target!(|bytes: &[u8]| {
    for mut decoder in [Decoder::new(), Decoder::after_greeting()] {
        let (mut encoder, mut again) = (Encoder::default(), Vec::new());
        decoder.feed(bytes);
        while let Ok(Some((session, frame))) = decoder.next_of_any() {
            encoder.put_to(session, &frame, &mut again);
        }
        assert!(again.len() <= bytes.len(), "more came out than went in");
    }
    if let Ok(order) = Order::decode(bytes) {
        let encoded = order.encode().expect("what was decoded can be encoded");
        assert_eq!(Order::decode(&encoded), Ok(order));
    }
});
