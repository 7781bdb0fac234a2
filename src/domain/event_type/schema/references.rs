//! The references of a schema: where they lead, and how much is applied to one value when all are followed.

use super::document::{Document, join};
use crate::domain::limits;

/// The address under which the parts of a schema find each other, when one of them is compiled alone.
pub(super) const ADDRESS: &str = "urn:waybill:schema";

impl Document {
    /// Returns a reference to a part that holds wherever it is compiled. It leads to the counting keyword of the part.
    pub(super) fn reference_to(&self, part: usize) -> String {
        format!("{ADDRESS}#{}", encode(&self.parts[part].counted))
    }

    /// Finds the part that each reference names.
    pub(super) fn resolve(&mut self) {
        for index in 0..self.parts.len() {
            let Some((text, _)) = self.parts[index].reference.clone() else { continue };
            let target = match text.strip_prefix('#').map(decode) {
                Some(Some(pointer)) if pointer.is_empty() || pointer.starts_with('/') => {
                    self.by_pointer.get(&pointer).copied()
                }
                Some(Some(anchor)) => self.by_anchor.get(&anchor).copied(),
                Some(None) | None => None,
            };
            let Some(target) = target else {
                let field = join(&self.parts[index].field, "$ref");
                self.refuse(
                    &field,
                    "must name a schema of this document, as # or #/… or #anchor does; nothing is fetched",
                );
                continue;
            };
            self.parts[index].reference = Some((text, target));
            self.parts[index].applied_with.push(target);
        }
    }

    /// Checks how many parts are applied to one value, with references followed.
    pub(super) fn measure(&mut self) {
        let mut measures: Vec<Measure> = vec![Measure::Unknown; self.parts.len()];
        let (mut chain, mut copies) = (0, 0_usize);
        for index in 0..self.parts.len() {
            let (applied, length) = match self.measure_part(index, &mut measures) {
                Ok(measured) => measured,
                Err(circular) => {
                    let field = self.parts[circular].field.clone();
                    return self.refuse(&field, "refers to itself without going into the payload, which never ends");
                }
            };
            if applied > limits::SCHEMA_APPLIED || length > limits::SCHEMA_CHAIN {
                let field = self.parts[index].field.clone();
                let (most, longest) = (limits::SCHEMA_APPLIED, limits::SCHEMA_CHAIN);
                return self.refuse(
                    &field,
                    format!(
                        "must apply at most {most} schemas to one value, and at most {longest} inside each other, with all references followed"
                    ),
                );
            }
            chain = chain.max(length);
            if self.parts[index].has_unevaluated {
                copies += applied;
            }
        }
        // What `unevaluated…` depends on is compiled once more for each of them.
        if copies > limits::SCHEMA_UNEVALUATED {
            let most = limits::SCHEMA_UNEVALUATED;
            let reason =
                format!("must not have unevaluatedProperties or unevaluatedItems beside more than {most} schemas");
            self.refuse("", reason);
        }
        self.chain = chain;
    }

    /// Returns how many parts are applied to one value if this part is, and how many of them inside each other. The
    /// error is a part that is applied to the same value again. The recursion is as deep as there are parts, at most.
    fn measure_part(&self, index: usize, measures: &mut Vec<Measure>) -> Result<(usize, usize), usize> {
        match measures[index] {
            Measure::Known(applied, length) => return Ok((applied, length)),
            Measure::UnderWay => return Err(index),
            Measure::Unknown => measures[index] = Measure::UnderWay,
        }
        let (mut applied, mut length) = (1_usize, 1);
        for other in &self.parts[index].applied_with {
            let (more, below) = self.measure_part(*other, measures)?;
            applied = applied.saturating_add(more);
            length = length.max(below + 1);
        }
        measures[index] = Measure::Known(applied, length);
        Ok((applied, length))
    }
}

/// What is known about the parts that are applied along with a part.
#[derive(Clone, Copy)]
enum Measure {
    Unknown,
    UnderWay,
    Known(usize, usize),
}

/// Decodes the fragment of a URI. Returns `None` if it is not UTF-8.
fn decode(fragment: &str) -> Option<String> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut rest = fragment.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = match tail {
            [high, low, ..] if *first == b'%' => digit(*high).zip(digit(*low)),
            _ => None,
        };
        bytes.push(escaped.map_or(*first, |(high, low)| (high * 16 + low) as u8));
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8(bytes).ok()
}

/// Encodes a JSON pointer as the fragment of a URI.
fn encode(pointer: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' | b'$' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    pointer.bytes().map(encode).collect()
}
