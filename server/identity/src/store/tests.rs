//! Files that are replaced while the server runs.

use std::fs;
use std::os::unix::fs::symlink;

use rcgen::{CertificateParams, KeyPair};

use super::*;
use crate::settings::ClientCertificates;
use crate::{Alpn, Role, new_key};

fn certificate(name: &str) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new([name.to_owned()]).unwrap().self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

/// Calls until changed content was seen twice.
fn settled(identity: &Identity) -> Vec<Reload> {
    assert!(identity.refresh().is_empty(), "new content is not loaded at first sight");
    identity.refresh()
}

#[test]
fn keys_are_replaced_and_a_wrong_file_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    let (first, second) = (new_key().unwrap(), new_key().unwrap());
    fs::write(&path, format!("{} infer search", first.sha256)).unwrap();
    let identity = Identity::load(Settings { keys: Some(path.clone()), ..Settings::default() }).unwrap();
    let knows = |key: &str| {
        let keys = identity.authenticator.as_ref().unwrap().keys.load();
        keys.as_ref().is_some_and(|keys| keys.find(key.as_bytes()).is_some())
    };
    assert!(identity.refresh().is_empty() && identity.refresh().is_empty());

    fs::write(&path, format!("{} infer search", second.sha256)).unwrap();
    let reloads = settled(&identity);
    assert!(matches!(&reloads[..], [Reload { file: File::Keys, result: Ok(()), .. }]), "{reloads:?}");
    assert!(knows(&second.key) && !knows(&first.key));

    fs::write(&path, "nonsense").unwrap();
    let reloads = settled(&identity);
    assert!(reloads[0].result.as_ref().unwrap_err().starts_with("line 1: expected"), "{reloads:?}");
    assert!(knows(&second.key), "the old keys stay");
    assert!(identity.refresh().is_empty(), "a failure is told once");

    fs::remove_file(&path).unwrap();
    assert!(settled(&identity)[0].result.as_ref().unwrap_err().starts_with("cannot read"));
    assert!(knows(&second.key));
    // As Kubernetes does it: the name is a link into a folder that is replaced.
    let new = folder.path().join("new");
    fs::write(&new, format!("{} infer search", first.sha256)).unwrap();
    symlink(&new, &path).unwrap();
    assert!(settled(&identity)[0].result.is_ok());
    assert!(knows(&first.key) && !knows(&second.key));
}

#[test]
fn a_certificate_and_its_key_are_replaced_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (cert, key) = certificate("one.example");
    fs::write(path("cert"), &cert).unwrap();
    fs::write(path("key"), &key).unwrap();
    fs::write(path("ca"), &cert).unwrap();
    let clients = ClientCertificates { ca: path("ca"), role: Role::Infer, tenant: "default".to_owned() };
    let files = TlsFiles { cert: path("cert"), key: path("key"), clients: Some(clients) };
    let identity = Identity::load(Settings { tls: Some(files), ..Settings::default() }).unwrap();
    let tls = identity.tls.as_ref().unwrap();
    let before = tls.config(Alpn::Http);
    assert_eq!(tls.config(Alpn::Grpc).alpn_protocols, [b"h2"]);
    assert_eq!(identity.expiries().len(), 2);

    let (cert, key) = certificate("two.example");
    fs::write(path("cert"), &cert).unwrap();
    let reloads = settled(&identity);
    assert_eq!(reloads.len(), 1);
    assert_eq!(reloads[0].file, File::Key);
    assert!(
        reloads[0].result.as_ref().unwrap_err().starts_with("expected the key of the certificate"),
        "{reloads:?}"
    );
    assert!(Arc::ptr_eq(&before, &tls.config(Alpn::Http)), "the old certificate stays");
    fs::write(path("key"), &key).unwrap();
    let reloads = settled(&identity);
    assert!(reloads.len() == 3 && reloads.iter().all(|reload| reload.result.is_ok()), "{reloads:?}");
    assert!(!Arc::ptr_eq(&before, &tls.config(Alpn::Http)));

    fs::write(path("ca"), "-----BEGIN CERTIFICATE-----\n").unwrap();
    let reloads = settled(&identity);
    assert_eq!(reloads[0].file, File::ClientCa);
    assert!(reloads[0].result.is_err());
}

#[test]
fn a_client_certificate_names_its_caller() {
    let (cert, key) = certificate("client.example");
    let clients = ClientCertificates { ca: "ca".into(), role: Role::Read, tenant: "ops".to_owned() };
    let pem = Pem { cert: cert.as_bytes(), key: key.as_bytes(), client_ca: Some(cert.as_bytes()) };
    let tls = Tls::new(&pem, Some(clients)).unwrap();
    let chain = crate::certificate::certificates(cert.as_bytes()).unwrap();
    let caller = tls.caller(Some(&chain)).unwrap();
    assert_eq!((caller.role, &*caller.tenant, &*caller.name), (Role::Read, "ops", "client.example"));
    assert!(tls.caller(None).is_none());
}

#[test]
fn every_mistake_is_told_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let files = TlsFiles { cert: missing.clone(), key: missing.clone(), clients: None };
    let settings = Settings { keys: Some(missing), tls: Some(files), ..Settings::default() };
    let mistakes = Identity::load(settings).err().unwrap();
    let files: Vec<File> = mistakes.iter().map(|mistake| mistake.file).collect();
    assert_eq!(files, [File::Keys, File::Cert]);
    assert!(Identity::load(Settings::default()).unwrap().authenticator.is_none());
}
