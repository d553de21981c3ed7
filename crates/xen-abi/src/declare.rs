//! The two forms in which everything of the headers is declared. Each declaration also makes the table from which
//! the tests write their C program.

/// A module of constants: `NAME = value, "name in C";`.
macro_rules! constants {
    (
        $(#[$about:meta])*
        $module:ident: $kind:ty {
            $( $(#[$note:meta])* $name:ident = $value:expr, $c:literal; )*
        }
    ) => {
        $(#[$about])*
        pub mod $module {
            $(
                $(#[$note])*
                #[doc = concat!("`", $c, "`.")]
                pub const $name: $kind = $value;
            )*

            #[cfg(test)]
            pub(crate) const TABLE: &[(&str, i128)] = &[$( ($c, $name as i128) ),*];
        }
    };
}

/// A structure: `Name = "name in C", bytes { field: kind = "name in C" @ offset, }`.
macro_rules! structure {
    (
        $(#[$about:meta])*
        $name:ident = $c:literal, $bytes:literal {
            $( $(#[$note:meta])* $field:ident: $kind:ty = $member:literal @ $offset:literal, )*
        }
    ) => {
        $(#[$about])*
        ///
        #[doc = concat!("`", $c, "`.")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(C)]
        pub struct $name {
            $(
                $(#[$note])*
                #[doc = concat!("`", $member, "`.")]
                pub $field: $kind,
            )*
        }

        const _: () = {
            assert!(size_of::<$name>() == $bytes);
            $( assert!(core::mem::offset_of!($name, $field) == $offset); )*
        };

        impl $name {
            /// It with zero in each field.
            pub fn zeroed() -> Self {
                <Self as $crate::Wire>::decode(&[0; $bytes])
            }

            /// Its bytes in memory; padding is zero.
            pub fn to_bytes(&self) -> [u8; $bytes] {
                let mut bytes = [0; $bytes];
                $crate::Wire::encode(self, &mut bytes);
                bytes
            }
        }

        impl $crate::Wire for $name {
            const BYTES: usize = $bytes;

            fn decode(bytes: &[u8]) -> Self {
                Self { $( $field: $crate::Wire::decode(&bytes[$offset..]) ),* }
            }

            fn encode(&self, bytes: &mut [u8]) {
                bytes[..$bytes].fill(0);
                $( $crate::Wire::encode(&self.$field, &mut bytes[$offset..]); )*
            }
        }

        #[cfg(test)]
        impl $crate::tests::Described for $name {
            const C: &str = $c;
            const FIELDS: &[(&str, usize, usize)] =
                &[$( ($member, $offset, size_of::<$kind>()) ),*];
        }
    };
}
