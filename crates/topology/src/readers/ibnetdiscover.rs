//! The output of `ibnetdiscover`: one record per switch and channel adapter, each with its links.
//!
//! ```text
//! vendid=0x2c9
//! switchguid=0x2c9020040aaaa(2c9020040aaaa)
//! Switch  36 "S-0002c9020040aaaa"   # "leaf0" enhanced port 0 lid 3 lmc 0
//! [1]  "H-0002c90300001111"[1](2c90300001112)   # "node01 HCA-1" lid 5 4xQDR
//! ```

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::error::{Fault, ReadError};
use crate::fabric::{Fabric, FabricError, VertexId};

const LINES: &str = "`key=value`, `Switch|Ca|Rt <ports> \"<id>\" # \"<description>\"`, \
                     `[<port>] \"<id>\"[<port>]`, comments";

#[derive(Clone, Copy, PartialEq, Eq)]
enum RecordKind {
    Switch,
    Adapter,
    Router,
}

/// A switch, adapter or router, as the file describes it.
struct Record<'a> {
    line: usize,
    kind: RecordKind,
    id: &'a str,
    description: &'a str,
    /// Line and id of each peer.
    peers: Vec<(usize, &'a str)>,
}

pub(super) fn read(text: &str) -> Result<Fabric, ReadError> {
    let records = parse(text)?;
    if !records.iter().any(|record| record.kind == RecordKind::Switch) {
        return Err(ReadError::at(1, Fault::Nothing { allowed: LINES }));
    }
    build(&records)
}

fn parse(text: &str) -> Result<Vec<Record<'_>>, ReadError> {
    let mut records: Vec<Record<'_>> = Vec::new();
    for (index, content) in text.lines().enumerate() {
        let line = index + 1;
        let not_understood = || {
            let found = content.trim().to_string();
            ReadError::at(line, Fault::NotUnderstood { found, allowed: LINES })
        };
        let content = content.trim();
        if content.is_empty() || content.starts_with('#') || is_attribute(content) {
            continue;
        }
        if content.starts_with('[') {
            let peer = unquote(content).ok_or_else(not_understood)?;
            let record = records.last_mut().ok_or_else(not_understood)?;
            record.peers.push((line, peer));
        } else {
            records.push(parse_record(line, content).ok_or_else(not_understood)?);
        }
    }
    Ok(records)
}

/// `vendid=0x2c9` and the like: lines that describe no links.
fn is_attribute(content: &str) -> bool {
    let key = content.split_once('=').map_or("", |(key, _)| key);
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_lowercase())
}

fn parse_record(line: usize, content: &str) -> Option<Record<'_>> {
    let (head, comment) = content.split_once('#').unwrap_or((content, ""));
    let kind = match head.split_whitespace().next()? {
        "Switch" => RecordKind::Switch,
        "Ca" => RecordKind::Adapter,
        "Rt" => RecordKind::Router,
        _ => return None,
    };
    let id = unquote(head)?;
    Some(Record { line, kind, id, description: unquote(comment).unwrap_or(""), peers: Vec::new() })
}

/// The text between the first two quotation marks, unless it is empty.
fn unquote(content: &str) -> Option<&str> {
    let (_, behind) = content.split_once('"')?;
    behind.split_once('"').map(|(inside, _)| inside).filter(|inside| !inside.is_empty())
}

fn build(records: &[Record<'_>]) -> Result<Fabric, ReadError> {
    let mut fabric = Fabric::new();
    let mut vertices: BTreeMap<&str, Option<VertexId>> = BTreeMap::new();
    let names = switch_names(records);
    // Switches first, so that the fault names the host that has a switch's name.
    let switches = records.iter().filter(|record| record.kind == RecordKind::Switch);
    let others = records.iter().filter(|record| record.kind != RecordKind::Switch);
    for record in switches.chain(others) {
        let fault = |error: FabricError| ReadError::at(record.line, error);
        if vertices.contains_key(record.id) {
            return Err(fault(FabricError::VertexTwice(record.id.to_string())));
        }
        let vertex = match record.kind {
            RecordKind::Switch => Some(fabric.add_switch(&names[record.id]).map_err(fault)?),
            RecordKind::Router => None,
            RecordKind::Adapter => adapter(&mut fabric, &names, record).map_err(fault)?,
        };
        vertices.insert(record.id, vertex);
    }
    link(&mut fabric, records, &vertices)?;
    Ok(fabric)
}

fn link(
    fabric: &mut Fabric,
    records: &[Record<'_>],
    vertices: &BTreeMap<&str, Option<VertexId>>,
) -> Result<(), ReadError> {
    for record in records {
        for &(line, peer) in &record.peers {
            let other = vertices.get(peer).ok_or_else(|| {
                let allowed = "the id of a Switch, Ca or Rt record";
                ReadError::at(line, Fault::Undescribed { name: peer.to_string(), allowed })
            })?;
            if let (Some(one), Some(other)) = (vertices[record.id], *other)
                && one != other
            {
                fabric.add_link(one, other).map_err(|fault| ReadError::at(line, fault))?;
            }
        }
    }
    Ok(())
}

/// The host of an adapter, added if it is new: a host with several adapters is one host.
/// `None` for a switch's own reduction device, which the file lists as an adapter.
fn adapter(
    fabric: &mut Fabric,
    switch_names: &BTreeMap<&str, String>,
    record: &Record<'_>,
) -> Result<Option<VertexId>, FabricError> {
    if record.description.contains("Aggregation Node") {
        return Ok(None);
    }
    // `node01 HCA-1` begins with the host's name. The vendor's name means that no host has set the
    // description, so many adapters share it.
    let named = !record.description.contains("Mellanox Technologies");
    let first = record.description.split_whitespace().next().filter(|_| named);
    let name = first.unwrap_or(record.id);
    match fabric.find(name) {
        Some(host) if !switch_names.values().any(|switch| switch == name) => Ok(Some(host)),
        _ => fabric.add_host(name).map(Some),
    }
}

/// A unique name for each switch, by id: its short name, else its description, else its id.
fn switch_names<'a>(records: &[Record<'a>]) -> BTreeMap<&'a str, String> {
    let switches = || records.iter().filter(|record| record.kind == RecordKind::Switch);
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for record in switches() {
        let (short, whole) = (short_name(record.description), record.description);
        *times.entry(short).or_default() += 1;
        if whole != short {
            *times.entry(whole).or_default() += 1;
        }
    }
    switches()
        .map(|record| {
            let candidates = [short_name(record.description), record.description];
            let unique = candidates.into_iter().find(|name| !name.is_empty() && times[name] == 1);
            (record.id, unique.unwrap_or(record.id).to_string())
        })
        .collect()
}

/// `sw01` of `MF0;sw01:MQM8700/U1`, which is how managed switches describe themselves.
fn short_name(description: &str) -> &str {
    let behind = description.split_once(';').map_or(description, |(_, behind)| behind);
    match behind.split_once(':') {
        Some((name, _)) if behind.len() < description.len() => name,
        _ => description,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_SWITCHES: &str = "\
#
# Topology file: generated on a quiet day
#
vendid=0x2c9
devid=0xbd36
sysimgguid=0xa0
switchguid=0xa1(a1)
Switch\t36 \"S-00000000000000a1\"\t\t# \"MF0;spine:MQM8700/U1\" enhanced port 0 lid 1 lmc 0
[1]\t\"S-00000000000000b1\"[35]\t\t# \"Infiniscale-IV Mellanox Technologies\" lid 2 4xQDR
[2]\t\"S-00000000000000b1\"[36]\t\t# \"Infiniscale-IV Mellanox Technologies\" lid 2 4xQDR
[41]\t\"H-00000000000000f1\"[1](f1)\t# \"Mellanox Technologies Aggregation Node\" lid 9 4xHDR

vendid=0x2c9
switchguid=0xb1(b1)
Switch\t36 \"S-00000000000000b1\"\t\t# \"Infiniscale-IV Mellanox Technologies\" base port 0 lid 2 lmc 0
[35]\t\"S-00000000000000a1\"[1]\t\t# \"MF0;spine:MQM8700/U1\" lid 1 4xQDR
[36]\t\"S-00000000000000a1\"[2]\t\t# \"MF0;spine:MQM8700/U1\" lid 1 4xQDR
[1]\t\"H-00000000000000c1\"[1](c2)\t\t# \"node01 HCA-1\" lid 3 4xQDR
[2]\t\"H-00000000000000d1\"[1](d2)\t\t# \"node01 HCA-2\" lid 4 4xQDR
[3]\t\"H-00000000000000e1\"[1](e2)\t\t# \"MT25408 ConnectX Mellanox Technologies\" lid 5 4xQDR

caguid=0xc1
Ca\t1 \"H-00000000000000c1\"\t\t# \"node01 HCA-1\"
[1](c2)\t\"S-00000000000000b1\"[1]\t\t# lid 3 lmc 0 \"Infiniscale-IV Mellanox Technologies\" lid 2 4xQDR
caguid=0xd1
Ca\t1 \"H-00000000000000d1\"\t\t# \"node01 HCA-2\"
[1](d2)\t\"S-00000000000000b1\"[2]\t\t# lid 4 lmc 0 \"Infiniscale-IV Mellanox Technologies\" lid 2 4xQDR
caguid=0xe1
Ca\t1 \"H-00000000000000e1\"\t\t# \"MT25408 ConnectX Mellanox Technologies\"
[1](e2)\t\"S-00000000000000b1\"[3]\t\t# lid 5 lmc 0 \"Infiniscale-IV Mellanox Technologies\" lid 2 4xQDR
caguid=0xf1
Ca\t1 \"H-00000000000000f1\"\t\t# \"Mellanox Technologies Aggregation Node\"
[1](f1)\t\"S-00000000000000a1\"[41]\t\t# lid 9 lmc 0 \"MF0;spine:MQM8700/U1\" lid 1 4xHDR
";

    #[test]
    fn switches_and_hosts_are_read() {
        let fabric = read(TWO_SWITCHES).unwrap();
        let mut names: Vec<_> = fabric.vertices().map(|(_, vertex)| vertex.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            ["H-00000000000000e1", "Infiniscale-IV Mellanox Technologies", "node01", "spine"]
        );
        let neighbours = |name: &str| fabric.neighbours(fabric.find(name).unwrap()).len();
        assert_eq!(neighbours("Infiniscale-IV Mellanox Technologies"), 3);
        assert_eq!(neighbours("spine"), 1);
    }

    #[test]
    fn switches_with_one_description_go_by_their_ids() {
        let text = "Switch\t2 \"S-1\"\t# \"same\" lid 1\n[1]\t\"S-2\"[1]\n\
                    Switch\t2 \"S-2\"\t# \"same\" lid 2\n[1]\t\"S-1\"[1]\n";
        let fabric = read(text).unwrap();
        assert!(fabric.find("S-1").is_some() && fabric.find("S-2").is_some());
    }

    #[test]
    fn chips_of_one_modular_switch_keep_their_whole_descriptions() {
        let text = "Switch\t2 \"S-1\"\t# \"MF0;core:CS7500/L01/U1\" lid 1\n\
                    Switch\t2 \"S-2\"\t# \"MF0;core:CS7500/L02/U1\" lid 2\n";
        let fabric = read(text).unwrap();
        assert!(fabric.find("MF0;core:CS7500/L02/U1").is_some());
    }

    #[test]
    fn mistakes_are_found_on_their_line() {
        let other = |found: &str| Fault::NotUnderstood { found: found.into(), allowed: LINES };
        let allowed = "the id of a Switch, Ca or Rt record";
        let cases = [
            ("vendid=0x2c9\n", 1, Fault::Nothing { allowed: LINES }),
            ("Switch\t1 \"S-1\"\nHub\t1 \"X-1\"", 2, other("Hub\t1 \"X-1\"")),
            ("[1]\t\"S-1\"[1]", 1, other("[1]\t\"S-1\"[1]")),
            ("Switch\t1 S-1", 1, other("Switch\t1 S-1")),
            ("Switch\t1 \"S-1\"\n[1]\tS-2[1]", 2, other("[1]\tS-2[1]")),
            (
                "Switch\t1 \"S-1\"\n\n[1]\t\"H-1\"[1]",
                3,
                Fault::Undescribed { name: "H-1".into(), allowed },
            ),
            (
                "Switch\t1 \"S-1\"\nSwitch\t1 \"S-1\"",
                2,
                FabricError::VertexTwice("S-1".into()).into(),
            ),
            (
                "Switch\t1 \"S-1\"\t# \"n1\"\nCa\t1 \"H-1\"\t# \"n1 HCA-1\"",
                2,
                FabricError::VertexTwice("n1".into()).into(),
            ),
        ];
        for (text, line, fault) in cases {
            assert_eq!(read(text), Err(ReadError { line, fault }), "{text}");
        }
    }
}
