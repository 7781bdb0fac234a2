//! `openapi.yaml` as JSON, for tools that do not read YAML.
//!
//! The members keep the order of the document: generated clients list fields in this order.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// Converts a YAML document to JSON.
pub(crate) fn to_json(yaml: &str) -> Result<String, String> {
    let document: Node = serde_saphyr::from_str(yaml).map_err(|error| error.to_string())?;
    serde_json::to_string(&document).map_err(|error| error.to_string())
}

/// A value of the document.
enum Node {
    Null,
    Bool(bool),
    Integer(i64),
    Number(f64),
    Text(String),
    List(Vec<Node>),
    Object(Vec<(String, Node)>),
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Node::Null => serializer.serialize_unit(),
            Node::Bool(value) => serializer.serialize_bool(*value),
            Node::Integer(value) => serializer.serialize_i64(*value),
            Node::Number(value) => serializer.serialize_f64(*value),
            Node::Text(value) => serializer.serialize_str(value),
            Node::List(items) => serializer.collect_seq(items),
            Node::Object(members) => {
                let mut object = serializer.serialize_map(Some(members.len()))?;
                for (name, value) in members {
                    object.serialize_entry(name, value)?;
                }
                object.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NodeVisitor;

        impl<'de> Visitor<'de> for NodeVisitor {
            type Value = Node;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a YAML value")
            }

            fn visit_unit<E>(self) -> Result<Node, E> {
                Ok(Node::Null)
            }

            fn visit_none<E>(self) -> Result<Node, E> {
                Ok(Node::Null)
            }

            fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
                Node::deserialize(deserializer)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
                Ok(Node::Bool(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
                Ok(Node::Integer(value))
            }

            fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Node, E> {
                i64::try_from(value).map(Node::Integer).map_err(E::custom)
            }

            fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
                Ok(Node::Number(value))
            }

            fn visit_str<E>(self, value: &str) -> Result<Node, E> {
                Ok(Node::Text(value.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(Node::List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Node, A::Error> {
                let mut object = Vec::new();
                while let Some(member) = members.next_entry()? {
                    object.push(member);
                }
                Ok(Node::Object(object))
            }
        }

        deserializer.deserialize_any(NodeVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::to_json;

    #[test]
    fn the_document_keeps_its_order_and_its_types() {
        let yaml = "zebra: 1\napple: [1.5, -2, true, null, 'on', '7', ~]\nmiddle: {b: text, a: two words}\n";
        assert_eq!(
            to_json(yaml).expect("JSON"),
            r#"{"zebra":1,"apple":[1.5,-2,true,null,"on","7",null],"middle":{"b":"text","a":"two words"}}"#
        );
    }

    #[test]
    fn the_served_document_is_the_same_in_both_formats() {
        let yaml: serde_json::Value = serde_saphyr::from_str(crate::http::docs::OPENAPI).expect("YAML");
        let json: serde_json::Value =
            serde_json::from_str(&to_json(crate::http::docs::OPENAPI).expect("JSON")).expect("JSON");
        assert_eq!(json, yaml);
    }
}
