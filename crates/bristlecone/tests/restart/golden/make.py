#!/usr/bin/env python3
"""Writes the first bytes of an index file in each format, as the libraries of these formats wrote them.

A header is little-endian words, the last of which is the CRC-32C of the others and of the path. The manifest begins at
byte 4096. Formats 1 and 2 have the same header; the extents and checksums in the manifest of format 2 are others. Format
3 has the number of the opening besides.
"""

import pathlib
import struct


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def words(*values):
    return struct.pack(f"<{len(values)}Q", *values)


MAGIC = struct.unpack("<Q", b"brstlseg")[0]
PATH = b"/dev/shm/golden.pool"
# Two extents; one tree with the number 5, two extents and two words.
MANIFESTS = {1: words(3, 5, 2, 2, 1, 2, 7, 8), 2: words(3, 5, 2, 2, 2, 1, 2, 9, 9, 7, 8)}
MANIFESTS[3] = MANIFESTS[2]

for version, manifest in MANIFESTS.items():
    header = [MAGIC, version, 0x1A1, 0x11, 0x12, 0x21, 0x22, 0x31, len(manifest) // 8, crc32c(manifest)]
    header += [26, 4711, len(PATH)] + ([0] if version >= 3 else [])
    header = words(*header)
    header += words(crc32c(header + PATH)) + PATH
    file = pathlib.Path(__file__).with_name(f"segment-{version}.bin")
    file.write_bytes(header.ljust(4096, b"\0") + manifest)
