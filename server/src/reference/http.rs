//! The REST interface.

use super::headers::{self, On};
use super::{code, reasons, table};
use node::config::ModelControl;

use crate::gate::{Surface, need};
use crate::http::{ROUTES, Route};

const INTRODUCTION: &str = "\
# HTTP

The address `server.http` (default 127.0.0.1:8000) speaks HTTP/1.1 and HTTP/2, with TLS if `tls.cert` is set. The interface is the Open
Inference Protocol v2 with the extensions that `GET /v2` lists. The address `server.admin` (default 127.0.0.1:8003) serves the paths that
manage the server. The address `server.metrics` answers `GET /metrics` only.

## Paths

Without `versions/{version}`, a path answers for the newest version that serves. Roles are needed if `[identity]` or `tls.client_ca` is
set; `operate` includes the other roles. A dash means that the address does not serve the path.
";

const ERRORS: &str = "
## Errors

A refused request is answered with `{\"error\": \"...\"}`, which names the field and says what would be right, and the header
`x-tessera-reason`. The same reasons are labels of metrics. Status 499 occurs in logs and metrics only.
";

pub fn page() -> String {
    let row = |route: &Route| {
        let need = |surface| match route.access.is_served_by(surface) {
            true => need(surface, route.access, ModelControl::Operate).to_string(),
            false => "-".to_owned(),
        };
        [
            code(&format!("{} {}", route.method.to_uppercase(), route.path)),
            need(Surface::Inference),
            need(Surface::Admin),
            route.about.to_owned(),
        ]
    };
    let header = ["path", "role on `server.http`", "role on `server.admin`", "answer"];
    let paths = table(header, ROUTES.iter().map(row));
    let errors = reasons(|row| row.http.as_u16().to_string());
    format!("{INTRODUCTION}\n{paths}\n{}{ERRORS}\n{errors}", headers::text(On::Http))
}
