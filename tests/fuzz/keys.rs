//! Identities and their storage keys: no part runs into the next one, and every text is valid.
use idempotent_core::{Identity, Key, KeyError, Parts, Scene};

/// The function under test.
#[derive(Debug)]
pub struct Maker {
    /// Returns the storage key of an identity.
    pub key: fn(&Fields) -> Result<Key, KeyError>,
}

impl Maker {
    /// The real function, [`Identity::key`].
    pub const REAL: Self = Self { key };
}

/// The five parts of an identity.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fields {
    /// The scene as text. The name of a built-in scene is that scene.
    pub scene: String,
    /// The namespace as text.
    pub namespace: String,
    /// The scope as text.
    pub scope: String,
    /// The tenant, or `None` without tenants.
    pub tenant: Option<Vec<Vec<u8>>>,
    /// The parts of the key.
    pub parts: Vec<Vec<u8>>,
}

fn key(fields: &Fields) -> Result<Key, KeyError> {
    let parts = |parts: &[Vec<u8>]| {
        let mut all = Parts::default();
        parts.iter().for_each(|part| all.push(part));
        all
    };
    let scene = Scene::Named(fields.scene.clone().into());
    let identity = Identity::new(scene, fields.scope.clone(), &parts(&fields.parts)).described(WHAT);
    let identity = match &fields.tenant {
        Some(tenant) => identity.tenant(&parts(tenant)),
        None => identity,
    };
    identity.key(&fields.namespace)
}

const WHAT: &str = "order.id";

/// Cuts the input into fields in two ways, moves each border by a byte, and moves pieces from one side to the other.
pub fn hold(maker: &Maker, input: &[u8]) -> &'static str {
    let Some((controls, material)) = input.split_first_chunk::<16>() else { return "too short" };
    let (one, other) = controls.split_at(8);
    let one = cut(one, material, None);
    let way = by_itself(maker, &one);
    apart(maker, &one, &cut(other, material, None));
    for border in 0..7 {
        apart(maker, &one, &cut(&controls[..8], material, Some(border)));
    }
    for other in regrouped(&one) {
        apart(maker, &one, &other);
    }
    way
}

/// Returns the same pieces in the same order, with other borders between tenant and key.
fn regrouped(fields: &Fields) -> impl Iterator<Item = Fields> {
    let all: Vec<_> = fields.tenant.iter().flatten().chain(&fields.parts).cloned().collect();
    let without = Fields { tenant: None, parts: all.clone(), ..fields.clone() };
    let fields = fields.clone();
    let moved = (1..all.len()).map(move |border| {
        let (tenant, parts) = all.split_at(border);
        Fields { tenant: Some(tenant.to_vec()), parts: parts.to_vec(), ..fields.clone() }
    });
    moved.chain([without])
}

/// Checks that equal keys have equal fields.
fn apart(maker: &Maker, one: &Fields, other: &Fields) {
    if let (Ok(a), Ok(b)) = ((maker.key)(one), (maker.key)(other)) {
        assert_eq!(a.hash() == b.hash(), one == other, "{one:?}\n{other:?}");
        assert_eq!(a == b, one == other);
    }
}

fn by_itself(maker: &Maker, fields: &Fields) -> &'static str {
    let key = match ((maker.key)(fields), refusal(fields)) {
        (Ok(key), None) => key,
        (Err(error), Some(wanted)) => {
            // The whole text is checked: it has number, limit and remedy, but no part of the key.
            assert_eq!(error.to_string(), wanted);
            return match error {
                KeyError::TooLong { .. } => "too long",
                KeyError::Empty { .. } => "empty",
                _ => "without a name",
            };
        }
        (found, wanted) => panic!("{fields:?}: {found:?}, not {wanted:?}"),
    };
    let text = key.as_str();
    let (name, tag) = text.rsplit_once(":{").expect("a hash in braces ends it");
    assert!(name.len() <= 120 && tag.len() == 23 && tag.ends_with('}'), "{text}");
    let plain = |char: char| char.is_alphanumeric() || ":_-.<>/".contains(char);
    assert!(name.chars().all(plain), "no braces, blanks, control characters or wildcards: {text:?}");
    assert_eq!(name, key.name());
    assert_eq!(Key::from_parts(name, key.hash()), key, "as a store reads it back");
    "a key"
}

/// Returns the expected error for fields without a valid key.
fn refusal(fields: &Fields) -> Option<String> {
    for (part, name) in [("namespace", &fields.namespace), ("scene", &fields.scene), ("scope", &fields.scope)] {
        if name.is_empty() {
            return Some(format!(
                "the {part} of the idempotency key is empty: name one, so that handlers do not share keys"
            ));
        }
    }
    let tenant = fields.tenant.as_ref().map(|tenant| (tenant, "tenant"));
    [(&fields.parts, WHAT)].into_iter().chain(tenant).find_map(|(parts, what)| parts_refusal(fields, parts, what))
}

fn parts_refusal(fields: &Fields, parts: &[Vec<u8>], what: &str) -> Option<String> {
    let scene = &fields.scene;
    let what = match parts.iter().position(Vec::is_empty) {
        Some(at) if parts.len() > 1 => Some(format!("{what}, part {}", at + 1)),
        Some(_) => Some(what.to_owned()),
        None if parts.is_empty() => Some(what.to_owned()),
        None => None,
    }
    .map_or_else(|| Err(what), Ok);
    let bytes: usize = parts.iter().map(Vec::len).sum();
    match what {
        Ok(what) => Some(format!(
            "the idempotency key is empty (scene \"{scene}\", key `{what}`): every message or request needs a key of \
             its own"
        )),
        Err(what) if bytes > 1024 => Some(format!(
            "the idempotency key has {bytes} bytes, limit 1024 (scene \"{scene}\", key `{what}`): hash it with \
             `key_hash`"
        )),
        Err(_) => None,
    }
}

/// Cuts eight pieces at seven borders, each at a 255th of the material. With `shifted`, that border is a byte further
/// on.
fn cut(controls: &[u8], material: &[u8], shifted: Option<usize>) -> Fields {
    let mut borders: Vec<usize> =
        controls[1..].iter().map(|control| usize::from(*control) * material.len() / 255).collect();
    borders.sort_unstable();
    if let Some(border) = shifted {
        borders[border] = (borders[border] + 1).min(material.len());
        borders.sort_unstable();
    }
    let (mut pieces, mut from) = (Vec::new(), 0);
    for to in borders.into_iter().chain([material.len()]) {
        pieces.push(&material[from..to]);
        from = to;
    }
    let text = |piece: &[u8]| String::from_utf8_lossy(piece).into_owned();
    let shape = controls[0];
    let scene = match shape % 4 {
        0 => "mq".to_owned(),
        1 => "rest".to_owned(),
        _ => text(pieces[1]),
    };
    let (tenants, parts) = (usize::from(shape >> 2) % 3, usize::from(shape >> 4) % 4);
    let own = |pieces: &[&[u8]]| pieces.iter().map(|piece| piece.to_vec()).collect();
    Fields {
        namespace: text(pieces[0]),
        scene,
        scope: text(pieces[2]),
        tenant: (tenants > 0).then(|| own(&pieces[3..3 + tenants])),
        parts: own(&pieces[8 - parts..]),
    }
}
