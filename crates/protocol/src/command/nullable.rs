//! Deserializers for command fields in which `null` means absence.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::data::Object;
pub(super) use crate::data::nullable;

/// Reads a map from names to objects. `null` is an empty map.
pub(super) fn objects<'de, D: Deserializer<'de>, K: Ord + Deserialize<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<BTreeMap<K, T>, D::Error> {
    struct Objects<K, T>(BTreeMap<K, T>);
    struct Reader<K, T>(PhantomData<(K, T)>);
    impl<'de, K: Ord + Deserialize<'de>, T: Deserialize<'de>> Visitor<'de> for Reader<K, T> {
        type Value = Objects<K, T>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("objects by their names")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Objects<K, T>, A::Error> {
            let mut objects = BTreeMap::new();
            while let Some((name, Object(object))) = map.next_entry()? {
                objects.insert(name, object);
            }
            Ok(Objects(objects))
        }
    }
    impl<'de, K: Ord + Deserialize<'de>, T: Deserialize<'de>> Deserialize<'de> for Objects<K, T> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_map(Reader(PhantomData))
        }
    }
    Ok(Option::<Objects<K, T>>::deserialize(deserializer)?.map(|objects| objects.0).unwrap_or_default())
}

/// Reads text that borrows from the input unless it contains escapes. `null` is an empty text.
pub(super) fn nullable_text<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Cow<'a, str>, D::Error> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    Ok(Option::<Text<'de>>::deserialize(deserializer)?.map(|text| text.0).unwrap_or_default())
}
