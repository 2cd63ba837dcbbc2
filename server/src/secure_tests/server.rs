//! A server with TLS whose files a test can replace.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use identity::{
    Alpn, ClientCertificates, Identity, NewKey, Role, Settings, TlsFiles, TokenSettings, new_key,
};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey};
use node::config::ModelControl;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::json;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::gate::Gate;
use crate::http::HttpService;
use crate::listener::{self, ConnectionLimits, Listener, Protocols};
use crate::{grpc, testing};

pub const ISSUER: &str = "https://issuer";
pub const AUDIENCE: &str = "tessera";

/// An authority that signs certificates.
pub struct Authority {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// A certificate for a name, and its key.
    pub fn sign(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

pub struct Server {
    folder: TempDir,
    pub authority: Authority,
    pub identity: Arc<Identity>,
    pub infer: NewKey,
    pub read: NewKey,
    pub operate: NewKey,
    /// Signs tokens.
    pub signer: EncodingKey,
    pub http: SocketAddr,
    pub grpc: SocketAddr,
    pub admin: SocketAddr,
    stop: CancellationToken,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Server {
    pub async fn start() -> Self {
        Self::with(Duration::from_secs(20), false).await
    }

    /// `clients`: they need certificates of the server's authority.
    pub async fn with(header_timeout: Duration, clients: bool) -> Self {
        let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
        let [infer, read, operate] = [(); 3].map(|()| new_key().unwrap());
        let lines = [(&infer, "infer search"), (&read, "read ops"), (&operate, "operate ops")];
        let lines: Vec<String> = lines.iter().map(|(key, rest)| format!("{} {rest}", key.sha256)).collect();
        let signer = EncodingKey::from_ec_der(&KeyPair::generate().unwrap().serialize_der());
        let jwk = Jwk::from_encoding_key(&signer, Algorithm::ES256).unwrap();
        let (cert, key) = authority.sign("localhost");
        let path = |name: &str| folder.path().join(name);
        fs::write(path("keys"), lines.join("\n")).unwrap();
        fs::write(path("jwks"), json!({ "keys": [jwk] }).to_string()).unwrap();
        fs::write(path("cert"), cert).unwrap();
        fs::write(path("key"), key).unwrap();
        fs::write(path("ca"), &authority.pem).unwrap();
        let certificates =
            ClientCertificates { ca: path("ca"), role: Role::Infer, tenant: "machines".to_owned() };
        let settings = Settings {
            keys: Some(path("keys")),
            tokens: Some(TokenSettings {
                jwks: path("jwks"),
                issuer: ISSUER.to_owned(),
                audiences: vec![AUDIENCE.to_owned()],
                leeway: Duration::from_secs(5),
                role_claim: "role".to_owned(),
                tenant_claim: "tenant".to_owned(),
            }),
            tls: Some(TlsFiles {
                cert: path("cert"),
                key: path("key"),
                clients: clients.then_some(certificates),
            }),
        };
        let identity = Arc::new(Identity::load(settings).unwrap());
        let gate = Gate::new(identity.authenticator.clone().unwrap(), ModelControl::Operate);
        let front = testing::gated_front(testing::limits(), &[], gate).await;
        front.service.node.load_at_start().await;
        let stop = CancellationToken::new();
        let limits = ConnectionLimits {
            connections: 8,
            header_bytes: 8192,
            header_timeout,
            answer_timeout: header_timeout,
            streams: 16,
        };
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut addresses = Vec::new();
        let rest = HttpService::new(Arc::clone(&front));
        let admin = HttpService::admin(Arc::clone(&front));
        for service in [rest, admin] {
            let listener = Listener::bind("test", here).await.unwrap().with_tls(identity.tls.clone());
            addresses.push(listener.address);
            let answer = listener::service(move |request| service.clone().answer(request));
            tokio::spawn(listener.serve(Protocols::Http, limits, answer, stop.clone()));
        }
        let listener = Listener::bind("test", here).await.unwrap().with_tls(identity.tls.clone());
        let rpc = grpc::service(Arc::clone(&front)).unwrap();
        let grpc = listener.address;
        let answer = listener::service(move |request| rpc.clone().answer(request));
        tokio::spawn(listener.serve(Protocols::Http2, limits, answer, stop.clone()));
        let [http, admin] = addresses[..] else { panic!("expected two addresses") };
        Self { folder, authority, identity, infer, read, operate, signer, http, grpc, admin, stop }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Takes up files that were replaced.
    pub fn refresh(&self) {
        assert!(self.identity.refresh().is_empty());
        let reloads = self.identity.refresh();
        assert!(!reloads.is_empty() && reloads.iter().all(|reload| reload.result.is_ok()), "{reloads:?}");
    }

    /// What a client is shown in a handshake now.
    pub fn tls(&self) -> Arc<tokio_rustls::rustls::ServerConfig> {
        self.identity.tls.as_ref().unwrap().config(Alpn::Http)
    }
}
