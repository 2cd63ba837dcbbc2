//! The REST interface.

use super::headers::{self, On};
use super::{code, reasons, table};
use crate::http::{ROUTES, Route};

const INTRODUCTION: &str = "\
# HTTP

The address `server.http` (default 127.0.0.1:8000) speaks HTTP/1.1 and HTTP/2 without TLS. The interface is the Open Inference
Protocol v2 with the extensions that `GET /v2` lists. The address `server.metrics` answers `GET /metrics` only.

## Paths

Without `versions/{version}`, a path answers for the newest version that serves.
";

const ERRORS: &str = "
## Errors

A refused request is answered with `{\"error\": \"...\"}`, which names the field and says what would be right, and the header
`x-tessera-reason`. The same reasons are labels of metrics. Status 499 occurs in logs and metrics only.
";

pub fn page() -> String {
    let row = |route: &Route| {
        [code(&format!("{} {}", route.method.to_uppercase(), route.path)), route.about.to_owned()]
    };
    let paths = table(["path", "answer"], ROUTES.iter().map(row));
    let errors = reasons(|row| row.http.as_u16().to_string());
    format!("{INTRODUCTION}\n{paths}\n{}{ERRORS}\n{errors}", headers::text(On::Http))
}
