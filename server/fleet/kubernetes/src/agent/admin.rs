//! A server of Tessera, through its admin interface.

use std::collections::BTreeMap;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::node::{Listing, ModelState, Node, NodeError};
use crate::resources::model::Source;
use crate::resources::node_plan::Device;

/// Largest answer that is read.
const ANSWER_BYTES: usize = 16 << 20;
/// Time in which the server lists its models.
const LIST: Duration = Duration::from_secs(10);
/// Time in which the server loads a model, or unloads it after its last request.
const CHANGE: Duration = Duration::from_secs(600);

/// An address or key that cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum AdminError {
    /// The address has no port, or a scheme other than `http`.
    #[error("admin address `{0}`: expected HOST:PORT or http://HOST:PORT, the server's `server.admin`")]
    Address(String),
    /// The key cannot be sent in a header.
    #[error("admin key: expected visible ASCII characters, as `tessera key new` prints")]
    Key,
}

/// The admin interface of a server on the same machine.
#[derive(Clone, Debug)]
pub struct Admin {
    authority: String,
    authorization: Option<HeaderValue>,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    #[serde(default)]
    state: String,
}

#[derive(Deserialize)]
struct Lane {
    device: String,
    first_unit: i32,
    units: i32,
}

#[derive(Deserialize)]
struct Refused {
    error: String,
}

impl Admin {
    /// The server with this admin address, and a key with the role `operate` if the server asks for one.
    ///
    /// # Errors
    /// The address or the key cannot be used.
    pub fn new(address: &str, key: Option<&str>) -> Result<Self, AdminError> {
        let authority = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/');
        let valid =
            authority.parse::<http::uri::Authority>().is_ok_and(|authority| authority.port_u16().is_some());
        if !valid {
            return Err(AdminError::Address(address.to_owned()));
        }
        let header = |key: &str| {
            let mut value = HeaderValue::try_from(format!("Bearer {key}")).map_err(|_| AdminError::Key)?;
            value.set_sensitive(true);
            Ok(value)
        };
        Ok(Self { authority: authority.to_owned(), authorization: key.map(header).transpose()? })
    }

    async fn call(&self, method: Method, path: &str, limit: Duration) -> Result<Bytes, NodeError> {
        let said = timeout(limit, self.exchange(method, path)).await;
        said.unwrap_or_else(|_| Err(NodeError(format!("the server did not answer {path} within {limit:?}"))))
    }

    async fn exchange(&self, method: Method, path: &str) -> Result<Bytes, NodeError> {
        let server = &self.authority;
        let failed =
            |what: &str, error: &dyn std::fmt::Display| NodeError(format!("{server}: {what}: {error}"));
        let stream = TcpStream::connect(server).await.map_err(|error| failed("cannot connect", &error))?;
        let connection = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = connection.map_err(|error| failed("no HTTP", &error))?;
        let request = Request::builder().method(method).uri(path).header(HOST, server);
        let request = request.header(CONTENT_TYPE, "application/json").body(Full::new(Bytes::new()));
        let mut request = request.map_err(|error| failed("the request cannot be sent", &error))?;
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        let answered = async {
            let response = sender.send_request(request).await.map_err(|error| failed("no answer", &error))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER_BYTES).collect().await;
            Ok((status, body.map_err(|error| failed("the answer broke off", &error))?.to_bytes()))
        };
        let mut answered = std::pin::pin!(answered);
        // The connection lives as long as this call, so a call that is dropped leaves nothing behind.
        let (status, body) = tokio::select! {
            biased;
            answer = &mut answered => answer?,
            _ended = connection => answered.await?,
        };
        if status == StatusCode::OK {
            return Ok(body);
        }
        match serde_json::from_slice::<Refused>(&body) {
            Ok(refused) => Err(NodeError(refused.error)),
            Err(_) => Err(NodeError(format!("{server} answered {path} with {status}"))),
        }
    }

    async fn read<T: DeserializeOwned>(&self, method: Method, path: &str) -> Result<T, NodeError> {
        let body = self.call(method, path, LIST).await?;
        serde_json::from_slice(&body)
            .map_err(|error| NodeError(format!("{path}: unexpected answer: {error}")))
    }

    async fn change(&self, model: &str, action: &str) -> Result<(), NodeError> {
        let model = utf8_percent_encode(model, NON_ALPHANUMERIC);
        self.call(Method::POST, &format!("/v2/repository/models/{model}/{action}"), CHANGE).await.map(drop)
    }
}

impl Node for Admin {
    async fn list(&self) -> Result<Listing, NodeError> {
        let rows: Vec<Row> = self.read(Method::POST, "/v2/repository/index").await?;
        let lanes: Vec<Lane> = self.read(Method::GET, "/v2/lanes").await?;
        let mut models = BTreeMap::new();
        for Row { name, state } in rows {
            let state = match state.as_str() {
                "READY" => ModelState::Ready,
                "LOADING" => ModelState::Loading,
                "UNLOADING" => ModelState::Unloading,
                _ => continue,
            };
            // A model has a row for each version. It is ready if one version is.
            let entry = models.entry(name).or_insert(state);
            if state == ModelState::Ready {
                *entry = state;
            }
        }
        let mut units: BTreeMap<String, i32> = BTreeMap::new();
        for lane in lanes {
            let entry = units.entry(lane.device).or_default();
            *entry = (*entry).max(lane.first_unit.saturating_add(lane.units));
        }
        let device = |(name, units)| Device { name, units, memory_bytes: None };
        Ok(Listing { models, devices: units.into_iter().map(device).collect(), ..Listing::default() })
    }

    async fn load(&self, model: &str, _source: Option<&Source>) -> Result<(), NodeError> {
        self.change(model, "load").await
    }

    async fn unload(&self, model: &str) -> Result<(), NodeError> {
        self.change(model, "unload").await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_needs_a_port_and_a_key_must_fit_a_header() {
        for address in ["127.0.0.1:8003", "http://localhost:8003/", "[::1]:8003"] {
            assert!(Admin::new(address, Some("key")).is_ok(), "{address}");
        }
        for address in ["127.0.0.1", "https://localhost:8003", ""] {
            assert_eq!(Admin::new(address, None).unwrap_err(), AdminError::Address(address.to_owned()));
        }
        assert_eq!(Admin::new("127.0.0.1:8003", Some("a\nb")).unwrap_err(), AdminError::Key);
    }

    #[tokio::test]
    async fn a_server_that_is_down_is_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let said = Admin::new(&address, None).unwrap().list().await.unwrap_err().to_string();
        assert!(said.starts_with(&format!("{address}: cannot connect: ")), "{said}");
    }
}
