//! The registers' description in XML, which gdb asks for (gdb's manual, appendix G).

use std::fmt::Write;

use crate::registers::GROUPS;

/// The types of gdb's own features that are not built in.
const FLAGS: &str = r#"<flags id="i386_eflags" size="4">
<field name="" start="22" end="31"/>
<field name="CF" start="0" end="0"/>
<field name="" start="1" end="1"/>
<field name="PF" start="2" end="2"/>
<field name="AF" start="4" end="4"/>
<field name="ZF" start="6" end="6"/>
<field name="SF" start="7" end="7"/>
<field name="TF" start="8" end="8"/>
<field name="IF" start="9" end="9"/>
<field name="DF" start="10" end="10"/>
<field name="OF" start="11" end="11"/>
<field name="NT" start="14" end="14"/>
<field name="RF" start="16" end="16"/>
<field name="VM" start="17" end="17"/>
<field name="AC" start="18" end="18"/>
<field name="VIF" start="19" end="19"/>
<field name="VIP" start="20" end="20"/>
<field name="ID" start="21" end="21"/>
</flags>"#;

const VECTORS: &str = r#"<vector id="v8bf16" type="bfloat16" count="8"/>
<vector id="v4f" type="ieee_single" count="4"/>
<vector id="v2d" type="ieee_double" count="2"/>
<vector id="v16i8" type="int8" count="16"/>
<vector id="v8i16" type="int16" count="8"/>
<vector id="v4i32" type="int32" count="4"/>
<vector id="v2i64" type="int64" count="2"/>
<union id="vec128">
<field name="v8_bfloat16" type="v8bf16"/>
<field name="v4_float" type="v4f"/>
<field name="v2_double" type="v2d"/>
<field name="v16_int8" type="v16i8"/>
<field name="v8_int16" type="v8i16"/>
<field name="v4_int32" type="v4i32"/>
<field name="v2_int64" type="v2i64"/>
<field name="uint128" type="uint128"/>
</union>
<flags id="i386_mxcsr" size="4">
<field name="IE" start="0" end="0"/>
<field name="DE" start="1" end="1"/>
<field name="ZE" start="2" end="2"/>
<field name="OE" start="3" end="3"/>
<field name="UE" start="4" end="4"/>
<field name="PE" start="5" end="5"/>
<field name="DAZ" start="6" end="6"/>
<field name="IM" start="7" end="7"/>
<field name="DM" start="8" end="8"/>
<field name="ZM" start="9" end="9"/>
<field name="OM" start="10" end="10"/>
<field name="UM" start="11" end="11"/>
<field name="PM" start="12" end="12"/>
<field name="FZ" start="15" end="15"/>
</flags>"#;

/// The description.
pub(crate) fn description() -> String {
    let mut text = String::from(
        "<?xml version=\"1.0\"?><!DOCTYPE target SYSTEM \"gdb-target.dtd\">\n<target>\n\
         <architecture>i386:x86-64</architecture>\n",
    );
    for group in &GROUPS {
        let types = match group.feature {
            "org.gnu.gdb.i386.core" => FLAGS,
            "org.gnu.gdb.i386.sse" => VECTORS,
            _ => "",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "<feature name=\"{}\">{types}", group.feature);
        for (name, kind, register) in group.registers {
            let bits = 8 * register.size();
            let _ = writeln!(text, "<reg name=\"{name}\" bitsize=\"{bits}\" type=\"{kind}\"/>");
        }
        text.push_str("</feature>\n");
    }
    text.push_str("</target>\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_register_is_described_and_every_element_ends() {
        let text = description();
        let registers: usize = GROUPS.iter().map(|group| group.registers.len()).sum();
        assert_eq!(text.matches("<reg name=").count(), registers);
        for element in ["target", "feature", "flags", "union", "architecture"] {
            let begun = text.matches(&format!("<{element}>")).count()
                + text.matches(&format!("<{element} ")).count();
            assert_eq!(begun, text.matches(&format!("</{element}>")).count(), "{element}");
        }
    }
}
