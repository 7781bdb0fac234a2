//! The OpenAPI document, and ways to navigate it. Locations in it are JSON pointers.

use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Mutex};

use jsonschema::{Draft, Validator};
use serde_json::Value;

use super::strictness::closed;

/// `openapi.yaml`, parsed.
pub(super) struct Document {
    root: Value,
    /// The same with closed schemas, for validation.
    closed: Value,
    validators: Mutex<HashMap<String, Arc<Validator>>>,
}

/// One method of one path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Operation {
    /// In capital letters.
    pub method: String,
    /// As written in the document, with `{id}`.
    pub path: String,
}

impl Operation {
    /// Returns the location of the operation in the document.
    pub(super) fn pointer(&self) -> String {
        format!("/paths/{}/{}", escape(&self.path), self.method.to_lowercase())
    }

    /// Returns the path with this id, also of a namespace, with a code that exists and with a token that does not.
    pub(super) fn with_id(&self, id: i64) -> String {
        let path = self.path.replace("{id}", &id.to_string()).replace("{name}", &id.to_string());
        path.replace("{code}", "lease_lost").replace("{token}", &"0".repeat(32))
    }

    /// Returns whether the operation takes the requests of other systems as they are.
    pub(super) fn is_foreign(&self) -> bool {
        self.path == "/in/{token}"
    }

    /// Returns the query that the operation requires.
    pub(super) fn required_query(&self) -> &'static str {
        match self.path.as_str() {
            "/events/subscribe" => "?tags=nobody&worker_id=w:1",
            "/deliveries/{id}/dead-letter" => "?reason=broken",
            "/webhooks" if self.method == "GET" => "?idempotency_key=k",
            _ => "",
        }
    }
}

impl Document {
    pub(super) fn load() -> Self {
        // Read when the test runs, so that a change of the document needs no compilation.
        let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.yaml")).expect("the document");
        let root: Value = serde_saphyr::from_str(&text).expect("openapi.yaml is YAML");
        Document { closed: closed(&root), root, validators: Mutex::default() }
    }

    pub(super) fn operations(&self) -> Vec<Operation> {
        let mut operations = Vec::new();
        for path in self.keys("/paths") {
            let pointer = format!("/paths/{}", escape(&path));
            for method in self.keys(&pointer).into_iter().filter(|key| key != "parameters") {
                operations.push(Operation { method: method.to_uppercase(), path: path.clone() });
            }
        }
        operations
    }

    /// Returns the operation with this id.
    #[track_caller]
    pub(super) fn operation(&self, operation_id: &str) -> Operation {
        let has_id = |operation: &Operation| self.at(&operation.pointer())["operationId"] == operation_id;
        self.operations().into_iter().find(has_id).unwrap_or_else(|| panic!("openapi.yaml has no {operation_id}"))
    }

    /// Returns the error codes, each with its status and its meaning, from the table in the description.
    pub(super) fn error_codes(&self) -> Vec<(&str, u16, &str)> {
        let rows = self.table("ErrorCode").into_iter();
        rows.map(|row| (row[0], row[1].parse().expect("a status"), row[2])).collect()
    }

    /// Returns the values that a string of responses has now, from the table in the description.
    #[track_caller]
    pub(super) fn open_values(&self, schema: &str) -> Vec<&str> {
        assert!(self.get(&format!("/components/schemas/{schema}/enum")).is_none(), "{schema} is closed");
        self.table(schema).into_iter().map(|row| row[0]).collect()
    }

    /// Returns the rows of the table in the description of a schema, without its head.
    fn table(&self, schema: &str) -> Vec<Vec<&str>> {
        let text = self.at(&format!("/components/schemas/{schema}/description")).as_str().expect("a description");
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        rows.map(|row| row.trim_matches('|').split(" | ").map(|cell| cell.trim().trim_matches('`')).collect()).collect()
    }

    /// Returns the value at a location, or `None`.
    pub(super) fn get(&self, pointer: &str) -> Option<&Value> {
        self.root.pointer(pointer)
    }

    /// Returns the value at a location, and panics if there is none.
    #[track_caller]
    pub(super) fn at(&self, pointer: &str) -> &Value {
        self.get(pointer).unwrap_or_else(|| panic!("openapi.yaml has no {pointer}"))
    }

    /// Returns the names of the members at a location.
    #[track_caller]
    pub(super) fn keys(&self, pointer: &str) -> Vec<String> {
        self.at(pointer).as_object().expect(pointer).keys().cloned().collect()
    }

    /// Returns the strings of the list at a location.
    #[track_caller]
    pub(super) fn strings(&self, pointer: &str) -> Vec<&str> {
        self.at(pointer).as_array().expect(pointer).iter().map(|word| word.as_str().expect(pointer)).collect()
    }

    /// Returns the location of a member, following references.
    pub(super) fn inside(&self, pointer: &str, name: &str) -> Option<String> {
        let pointer = format!("{pointer}/{}", escape(name));
        self.get(&pointer)?;
        Some(self.follow(pointer))
    }

    /// Follows the references that start at a location.
    pub(super) fn follow(&self, mut pointer: String) -> String {
        while let Some(target) = self.at(&pointer).get("$ref").and_then(Value::as_str) {
            pointer = target.strip_prefix('#').expect("references stay within the document").to_owned();
        }
        pointer
    }

    /// Returns the locations of an operation's parameters, including those of its path.
    pub(super) fn parameters(&self, operation: &Operation) -> Vec<String> {
        let own = operation.pointer();
        let of_path = own.rsplit_once('/').expect("a method").0;
        let lists = [format!("{of_path}/parameters"), format!("{own}/parameters")];
        let pointers = lists.iter().flat_map(|list| {
            let count = self.get(list).map_or(0, |list| list.as_array().expect("a list").len());
            (0..count).map(move |index| format!("{list}/{index}"))
        });
        pointers.map(|pointer| self.follow(pointer)).collect()
    }

    /// Returns the first example of a request's body.
    pub(super) fn request_example(&self, operation: &Operation) -> Option<&Value> {
        self.request_examples(operation).into_iter().next()
    }

    /// Returns the examples of a request's body.
    pub(super) fn request_examples(&self, operation: &Operation) -> Vec<&Value> {
        let pointer = format!("{}/requestBody/content/application~1json/examples", operation.pointer());
        if self.get(&pointer).is_none() {
            return Vec::new();
        }
        let names = self.keys(&pointer);
        names.iter().filter_map(|name| self.inside(&pointer, name)).map(|example| &self.at(&example)["value"]).collect()
    }

    /// Asserts that a value fits the schema at a location, and has no field that the schema lacks.
    #[track_caller]
    pub(super) fn validate(&self, schema: &str, value: &Value) {
        let complaints: Vec<String> = self
            .validator(schema)
            .iter_errors(value)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(complaints.is_empty(), "does not fit {schema}:\n{}\n{value:#}", complaints.join("\n"));
    }

    fn validator(&self, schema: &str) -> Arc<Validator> {
        let mut validators = self.validators.lock().expect("no panic under this lock");
        let made = validators.entry(schema.to_owned()).or_insert_with(|| {
            // The whole document is around the schema, because references need their targets.
            let mut root = self.closed.clone();
            root["$ref"] = format!("#{}", schema.replace('{', "%7B").replace('}', "%7D")).into();
            let options = jsonschema::options().with_draft(Draft::Draft202012).should_validate_formats(true);
            Arc::new(options.build(&root).unwrap_or_else(|error| panic!("{schema}: {error}")))
        });
        made.clone()
    }
}

/// Escapes a name for a JSON pointer.
pub(super) fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
