//! The problems of one `config.pbtxt`, gathered so that all are told at once.

use miette::Diagnostic as _;
use prost_reflect::text_format::ParseError;

use super::layout::{Layout, Position};
use crate::{ConfigError, ModelName, Problem};

/// Most problems that are listed.
const LISTED_MAX: usize = 50;

pub(super) struct Problems<'a> {
    model: &'a ModelName,
    text: &'a str,
    layout: &'a Layout,
    found: Vec<(Option<Position>, Problem)>,
}

impl<'a> Problems<'a> {
    pub(super) fn new(model: &'a ModelName, text: &'a str, layout: &'a Layout) -> Self {
        Self { model, text, layout, found: Vec::new() }
    }

    /// Name of the model.
    pub(super) fn model(&self) -> &str {
        self.model.as_str()
    }

    /// Adds a problem of the field at a path with indices.
    pub(super) fn add(&mut self, path: &str, reason: String) {
        let position = self.layout.position(path);
        self.push(position, path, reason);
    }

    /// Adds a problem of an entry of the map at a path.
    pub(super) fn add_key(&mut self, path: &str, key: &str, reason: String) {
        let field = self.name_of_key(path, key);
        self.found.push((self.position_of_key(path, key), Problem { field, reason }));
    }

    /// An entry of a map as messages name it.
    pub(super) fn name_of_key(&self, path: &str, key: &str) -> String {
        format!("{}: `{key}`", name(self.position_of_key(path, key), path))
    }

    /// Where the text has the key, or else the map.
    fn position_of_key(&self, path: &str, key: &str) -> Option<Position> {
        let quoted = ['"', '\''].iter().find_map(|quote| self.text.find(&format!("{quote}{key}{quote}")));
        quoted.map(|offset| Position::of(self.text, offset)).or_else(|| self.layout.position(path))
    }

    fn push(&mut self, position: Option<Position>, path: &str, reason: String) {
        self.found.push((position, Problem { field: name(position, path), reason }));
    }

    /// Adds a problem for each name that is not a field of its message.
    pub(super) fn add_unknown(&mut self) {
        let layout = self.layout;
        for unknown in &layout.unknown {
            let known: Vec<&str> = unknown.expected.iter().map(String::as_str).collect();
            let hint = match units::nearest(&unknown.name, &known) {
                Some(near) => format!(", did you mean `{near}`?"),
                None => format!(": expected {}", known.join(", ")),
            };
            self.push(
                Some(unknown.position),
                &unknown.path,
                format!("is not a field of Triton's ModelConfig{hint}"),
            );
        }
    }

    /// Adds the mistake at which the parser stopped. `added` are the places of colons that the text does not have.
    pub(super) fn add_syntax(&mut self, error: &ParseError, added: &[usize]) {
        let offset = error.labels().and_then(|mut labels| labels.next()).map(|label| label.offset());
        let original = offset.map(|offset| offset - added.iter().filter(|&&colon| colon < offset).count());
        let position = Position::of(self.text, original.unwrap_or(self.text.len()));
        self.push(Some(position), "", format!("is not a protobuf text of `inference.ModelConfig`: {error}"));
    }

    /// The field as messages name it.
    pub(super) fn name(&self, path: &str) -> String {
        name(self.layout.position(path), path)
    }

    pub(super) fn result(&self) -> Result<(), ConfigError> {
        if self.found.is_empty() { Ok(()) } else { Err(self.error()) }
    }

    /// All problems in the order of the text.
    pub(super) fn error(&self) -> ConfigError {
        let mut found = self.found.clone();
        found.sort_by_key(|(position, _)| *position);
        let problems = found.into_iter().map(|(_, problem)| problem).take(LISTED_MAX).collect();
        ConfigError { model: self.model.to_string(), problems }
    }
}

/// `config.pbtxt:LINE:COLUMN: PATH`. The position tells elements of lists apart, so the path needs no indices.
fn name(position: Option<Position>, path: &str) -> String {
    let mut named = "config.pbtxt".to_owned();
    if let Some(Position { line, column }) = position {
        named.push_str(&format!(":{line}:{column}"));
    }
    if !path.is_empty() {
        named.push_str(": ");
        let mut inside = false;
        for c in path.chars() {
            inside = (inside || c == '[') && c != ']';
            if !inside && c != ']' {
                named.push(c);
            }
        }
    }
    named
}
