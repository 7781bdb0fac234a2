//! The document, and ways through it. Places in it are JSON pointers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use jsonschema::{Draft, Validator};
use serde_json::Value;

/// `openapi.yaml`, parsed.
pub struct Document {
    root: Value,
    validators: Mutex<HashMap<String, Arc<Validator>>>,
}

/// One method of one path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Operation {
    /// In capitals.
    pub method: String,
    /// As the document writes it, with `{id}`.
    pub path: String,
}

impl Operation {
    /// Where it stands in the document.
    pub fn place(&self) -> String {
        format!("/paths/{}/{}", escape(&self.path), self.method.to_lowercase())
    }

    /// A real path, with this id.
    pub fn with_id(&self, id: i64) -> String {
        self.path.replace("{id}", &id.to_string())
    }
}

impl Document {
    pub fn load() -> Self {
        let root = serde_saphyr::from_str(waybill::http::docs::OPENAPI).expect("openapi.yaml is YAML");
        Document { root, validators: Mutex::default() }
    }

    /// All operations.
    pub fn operations(&self) -> Vec<Operation> {
        let mut operations = Vec::new();
        for path in self.keys("/paths") {
            let place = format!("/paths/{}", escape(&path));
            for method in self.keys(&place).into_iter().filter(|key| key != "parameters") {
                operations.push(Operation { method: method.to_uppercase(), path: path.clone() });
            }
        }
        operations
    }

    /// What stands at a place, if there is such a place.
    pub fn get(&self, place: &str) -> Option<&Value> {
        self.root.pointer(place)
    }

    /// What stands at a place.
    #[track_caller]
    pub fn at(&self, place: &str) -> &Value {
        self.get(place).unwrap_or_else(|| panic!("openapi.yaml has no {place}"))
    }

    /// The names of the members at a place.
    #[track_caller]
    pub fn keys(&self, place: &str) -> Vec<String> {
        self.at(place).as_object().expect(place).keys().cloned().collect()
    }

    /// The strings of the list at a place.
    #[track_caller]
    pub fn words(&self, place: &str) -> Vec<&str> {
        self.at(place).as_array().expect(place).iter().map(|word| word.as_str().expect(place)).collect()
    }

    /// The place of a member, and if that is a reference, what it refers to.
    pub fn inside(&self, place: &str, name: &str) -> Option<String> {
        let place = format!("{place}/{}", escape(name));
        self.get(&place)?;
        Some(self.follow(place))
    }

    /// Where the references that start at a place lead.
    pub fn follow(&self, mut place: String) -> String {
        while let Some(target) = self.at(&place).get("$ref").and_then(Value::as_str) {
            place = target.strip_prefix('#').expect("references stay within the document").to_owned();
        }
        place
    }

    /// The places of the parameters of an operation, those of its path included.
    pub fn parameters(&self, operation: &Operation) -> Vec<String> {
        let own = operation.place();
        let of_path = own.rsplit_once('/').expect("a method").0;
        let lists = [format!("{of_path}/parameters"), format!("{own}/parameters")];
        let places = lists.iter().flat_map(|list| {
            let count = self.get(list).map_or(0, |list| list.as_array().expect("a list").len());
            (0..count).map(move |index| format!("{list}/{index}"))
        });
        places.map(|place| self.follow(place)).collect()
    }

    /// The first example of a request's body.
    pub fn request_example(&self, operation: &Operation) -> Option<&Value> {
        self.request_examples(operation).into_iter().next()
    }

    /// The examples of a request's body.
    pub fn request_examples(&self, operation: &Operation) -> Vec<&Value> {
        let place = format!("{}/requestBody/content/application~1json/examples", operation.place());
        if self.get(&place).is_none() {
            return Vec::new();
        }
        let names = self.keys(&place);
        names.iter().filter_map(|name| self.inside(&place, name)).map(|example| &self.at(&example)["value"]).collect()
    }

    /// Insists that a value fits the schema at a place.
    #[track_caller]
    pub fn validate(&self, schema: &str, value: &Value) {
        let complaints: Vec<String> = self
            .validator(schema)
            .iter_errors(value)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(complaints.is_empty(), "does not fit {schema}:\n{}\n{value:#}", complaints.join("\n"));
    }

    fn validator(&self, schema: &str) -> Arc<Validator> {
        let mut validators = self.validators.lock().expect("no test panicked here");
        let made = validators.entry(schema.to_owned()).or_insert_with(|| {
            // The whole document around it, so that its references find their targets.
            let mut root = self.root.clone();
            root["$ref"] = format!("#{}", schema.replace('{', "%7B").replace('}', "%7D")).into();
            let options = jsonschema::options().with_draft(Draft::Draft202012).should_validate_formats(true);
            Arc::new(options.build(&root).unwrap_or_else(|error| panic!("{schema}: {error}")))
        });
        made.clone()
    }
}

/// A name as a step of a JSON pointer.
pub fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
