//! JSON in which a name given twice is a mistake, and not a matter of which one wins.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// A value in which no name is given twice.
#[derive(Debug)]
pub struct UniqueJson(pub Value);

impl<'de> Deserialize<'de> for UniqueJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Build;
        impl<'de> Visitor<'de> for Build {
            type Value = UniqueJson;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a JSON value")
            }

            fn visit_unit<E>(self) -> Result<UniqueJson, E> {
                Ok(UniqueJson(Value::Null))
            }

            fn visit_bool<E>(self, value: bool) -> Result<UniqueJson, E> {
                Ok(UniqueJson(value.into()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<UniqueJson, E> {
                Ok(UniqueJson(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<UniqueJson, E> {
                Ok(UniqueJson(value.into()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<UniqueJson, E> {
                Ok(UniqueJson(value.into()))
            }

            fn visit_str<E>(self, value: &str) -> Result<UniqueJson, E> {
                Ok(UniqueJson(value.into()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<UniqueJson, A::Error> {
                let mut list = Vec::new();
                while let Some(UniqueJson(item)) = items.next_element()? {
                    list.push(item);
                }
                Ok(UniqueJson(list.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<UniqueJson, A::Error> {
                let mut object = Map::new();
                while let Some((name, UniqueJson(value))) = pairs.next_entry::<String, _>()? {
                    if object.contains_key(&name) {
                        let shown: String = name.chars().take(40).collect();
                        return Err(A::Error::custom(format_args!("{shown} is given twice")));
                    }
                    object.insert(name, value);
                }
                Ok(UniqueJson(object.into()))
            }
        }
        deserializer.deserialize_any(Build)
    }
}
