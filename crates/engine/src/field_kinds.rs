//! What the fields of requests take, as serde reads them: what is typed on a command line becomes JSON by it.

use serde::de::value::Error as NoValue;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IntoDeserializer as _, MapAccess, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};

use crate::field_names::field_names;

/// What a field of a request takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    /// Text.
    Text,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// A list.
    List,
    /// An object.
    Object,
    /// Any JSON.
    Json,
}

/// What the fields of a struct take, in the order of [`field_names`].
pub fn field_kinds<T: Deserialize<'static>>() -> Vec<FieldKind> {
    let kind_of = |name: &&'static str| {
        let mut kind = FieldKind::Json;
        // The field has no value, so reading always fails; what it takes is told before.
        let _ = T::deserialize(OneField { name, kind: &mut kind });
        kind
    };
    field_names::<T>().iter().map(kind_of).collect()
}

/// A struct with one field, whose value is asked for.
struct OneField<'a> {
    name: &'static str,
    kind: &'a mut FieldKind,
}

impl<'de> Deserializer<'de> for OneField<'_> {
    type Error = NoValue;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoValue> {
        visitor.visit_map(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de> MapAccess<'de> for OneField<'_> {
    type Error = NoValue;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, NoValue> {
        seed.deserialize(self.name.into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, NoValue> {
        seed.deserialize(AskedValue(self.kind))
    }
}

/// A deserializer that notes what is asked for.
struct AskedValue<'a>(&'a mut FieldKind);

/// Methods that note a kind, and have no value.
macro_rules! asked {
    ($kind:ident: $($method:ident($($argument:ty),*))*) => {
        $(fn $method<V: Visitor<'de>>(self, $(_: $argument,)* _visitor: V) -> Result<V::Value, NoValue> {
            *self.0 = FieldKind::$kind;
            Err(NoValue::custom("no value"))
        })*
    };
}

impl<'de> Deserializer<'de> for AskedValue<'_> {
    type Error = NoValue;

    asked!(Text: deserialize_char() deserialize_str() deserialize_string() deserialize_identifier()
        deserialize_enum(&'static str, &'static [&'static str]));
    asked!(Number: deserialize_i8() deserialize_i16() deserialize_i32() deserialize_i64() deserialize_i128()
        deserialize_u8() deserialize_u16() deserialize_u32() deserialize_u64() deserialize_u128()
        deserialize_f32() deserialize_f64());
    asked!(Boolean: deserialize_bool());
    asked!(List: deserialize_seq() deserialize_tuple(usize) deserialize_tuple_struct(&'static str, usize));
    asked!(Object: deserialize_map() deserialize_struct(&'static str, &'static [&'static str]));
    asked!(Json: deserialize_any() deserialize_ignored_any() deserialize_bytes() deserialize_byte_buf()
        deserialize_unit() deserialize_unit_struct(&'static str));

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoValue> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, NoValue> {
        // The marker of `serde_json` for JSON that is kept as it is written.
        if name.starts_with('$') { self.deserialize_any(visitor) } else { visitor.visit_newtype_struct(self) }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::collections::BTreeMap;

    use serde_json::value::RawValue;

    use super::*;

    #[derive(Deserialize)]
    struct Newtype(#[expect(dead_code)] u64);

    #[derive(Deserialize)]
    #[expect(dead_code)]
    struct Request<'a> {
        text: String,
        maybe: Option<Cow<'a, str>>,
        number: Newtype,
        ratio: Option<f64>,
        switch: bool,
        list: Vec<String>,
        pair: (u32, u32),
        map: BTreeMap<String, String>,
        #[serde(borrow)]
        raw: Option<&'a RawValue>,
        any: serde_json::Value,
    }

    #[test]
    fn each_field_tells_what_it_takes() {
        use FieldKind::{Boolean, Json, List, Number, Object, Text};
        assert_eq!(
            field_kinds::<Request<'static>>(),
            [Text, Text, Number, Number, Boolean, List, List, Object, Json, Json]
        );
        assert_eq!(field_kinds::<Vec<u32>>(), []);
    }
}
