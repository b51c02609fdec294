import * as zlib from "node:zlib";

const POLYNOMIAL = 0xedb88320; // of CRC-32 as in zlib, reflected

const table = new Int32Array(256).map((_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ POLYNOMIAL : crc >>> 1;
  return crc;
});

/** The CRC-32 of zlib, one byte at a time. */
export function tableCrc32(bytes: Uint8Array): number {
  let crc = -1;
  for (let i = 0; i < bytes.length; i++) crc = table[(crc ^ bytes[i]!) & 0xff]! ^ (crc >>> 8);
  return ~crc >>> 0;
}

/** zlib's own, which Node has from 20.15 and 22.2 on. */
export const nativeCrc32 = (zlib as { crc32?: (bytes: Uint8Array) => number }).crc32;

/** Below so many bytes the call into zlib costs more than the table. */
const NATIVE_FROM_BYTES = 128;

/** The CRC-32 of zlib, PNG and Ethernet; not CRC-32C. */
export const crc32: (bytes: Uint8Array) => number =
  nativeCrc32 === undefined
    ? tableCrc32
    : (bytes) => (bytes.length < NATIVE_FROM_BYTES ? tableCrc32(bytes) : nativeCrc32!(bytes));
