//! The field names of a deserialisable struct, from serde.
//!
//! Unknown keys are reported with their full path and the nearest known key. The known keys are the fields of the struct, so
//! an option is defined once.

use std::fmt;

use serde::de::{DeserializeOwned, Deserializer, Visitor};
use serde::forward_to_deserialize_any;
use units::nearest;

/// Field names of `T`, in order; empty if `T` is not a struct.
pub fn of<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut found: &'static [&'static str] = &[];
    // Deserialisation always fails: it only collects the names.
    let _ = T::deserialize(Names(&mut found));
    found
}

/// A deserialiser without data that records the requested names.
struct Names<'a>(&'a mut &'static [&'static str]);

#[derive(Debug)]
struct NoData;

impl fmt::Display for NoData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no data")
    }
}

impl std::error::Error for NoData {}

impl serde::de::Error for NoData {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

impl<'de> Deserializer<'de> for Names<'_> {
    type Error = NoData;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, NoData> {
        Err(NoData)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, NoData> {
        *self.0 = fields;
        Err(NoData)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// The message for an unknown key: the nearest known one, or all of them.
pub fn unknown(key: &str, known: &[&str], what: &str) -> String {
    match nearest(key, known) {
        Some(near) => format!("unknown {what}, did you mean `{near}`?"),
        None => format!("unknown {what}: expected one of {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its shape is used")]
    struct Sample {
        max_delay: u32,
        policy: String,
    }

    #[test]
    fn names_are_those_of_the_struct() {
        assert_eq!(of::<Sample>(), ["max_delay", "policy"]);
        assert_eq!(of::<u32>(), [""; 0]);
    }

    #[test]
    fn near_names_are_suggested_and_far_ones_are_not() {
        let known = of::<Sample>();
        assert_eq!(nearest("maxdelay", known), Some("max_delay"));
        assert_eq!(nearest("max-dealy", known), Some("max_delay"));
        assert_eq!(nearest("polcy", known), Some("policy"));
        assert_eq!(nearest("colour", known), None);
    }
}
