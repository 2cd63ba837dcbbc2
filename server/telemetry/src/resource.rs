//! What sends the telemetry.

use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::resource::v1;

use crate::attribute;

/// The server that sends, by the names of the OpenTelemetry semantic conventions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// `service.name`.
    pub service: String,
    /// `service.version`.
    pub version: String,
    /// `service.instance.id`: tells servers with the same name apart.
    pub instance: String,
    /// Further attributes, such as `host.name` or `deployment.environment.name`.
    pub attributes: Vec<(String, String)>,
}

impl Resource {
    pub(crate) fn message(&self) -> v1::Resource {
        let mut attributes = vec![
            attribute::text("service.name", &self.service),
            attribute::text("service.version", &self.version),
            attribute::text("service.instance.id", &self.instance),
        ];
        attributes.extend(self.attributes.iter().map(|(key, value)| attribute::text(key, value)));
        v1::Resource { attributes, ..v1::Resource::default() }
    }
}

/// What the telemetry was made by.
pub(crate) fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "tessera".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}
