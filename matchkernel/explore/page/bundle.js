// Facts and arrays in one piece of bytes; see bundle.py.
const ARRAY_TYPES = { u1: Uint8Array, i1: Int8Array, u2: Uint16Array, u4: Uint32Array, f4: Float32Array };

/** { facts, arrays } of an ArrayBuffer; each array is { shape, data } with data a view of the buffer. */
export function unpack(buffer) {
  const end = 4 + new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, end - 4)));
  const arrays = {};
  for (const [name, { type, shape, start }] of Object.entries(header.arrays)) {
    const count = shape.reduce((product, side) => product * side, 1);
    arrays[name] = { shape, data: new ARRAY_TYPES[type](buffer, end + start, count) };
  }
  return { facts: header.facts, arrays };
}
