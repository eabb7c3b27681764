//! The names of the fields of requests, as serde knows them, for the documentation of the server API.

use serde::de::value::Error as NoValue;
use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
use serde::forward_to_deserialize_any;

/// The names of the fields of a struct that serde can read; empty = the type is not a struct.
pub fn field_names<T: Deserialize<'static>>() -> &'static [&'static str] {
    let mut names: &'static [&'static str] = &[];
    // The deserializer has no value, so reading always fails. But it gets the names of the fields before that.
    let _ = T::deserialize(FieldNames(&mut names));
    names
}

/// A deserializer that records which fields are requested.
struct FieldNames<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for FieldNames<'_> {
    type Error = NoValue;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, NoValue> {
        Err(NoValue::custom("no value"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, NoValue> {
        *self.0 = fields;
        Err(NoValue::custom("no value"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[test]
fn the_fields_of_a_struct_are_told_and_nothing_else_has_any() {
    #[derive(serde::Deserialize)]
    struct Two {
        #[serde(rename = "first")]
        _one: u32,
        #[serde(rename = "second")]
        _two: Option<String>,
    }
    assert_eq!(field_names::<Two>(), ["first", "second"]);
    assert_eq!(field_names::<Vec<u32>>(), [""; 0]);
}
