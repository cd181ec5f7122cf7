// Writes flags as encoders of JavaScript do. Run: node encode.js <flags.json >javascript.json
const flags = JSON.parse(require('fs').readFileSync(0, 'utf8'))
const entities = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;', '/': '&#x2F;', '`': '&#x60;', '=': '&#x3D;' }
const out = flags.map(flag => {
  const raw = Buffer.from(flag)
  return { flag, texts: {
    encodeURIComponent: encodeURIComponent(flag), encodeURI: encodeURI(flag), lower: encodeURIComponent(flag).replace(/%../g, e => e.toLowerCase()),
    URLSearchParams: new URLSearchParams({ f: flag }).toString().slice(2), URL: new URL('http://h/?f=' + encodeURIComponent(flag)).href,
    mustache: flag.replace(/[&<>"'`=\/]/g, c => entities[c]), JSON: JSON.stringify(flag).slice(1, -1), 'JSON in JSON': JSON.stringify(JSON.stringify(flag)).slice(3, -3),
    'code units': [...Array(flag.length).keys()].map(i => '\\u' + flag.charCodeAt(i).toString(16).padStart(4, '0')).join(''),
    'code points': [...flag].map(c => '\\u{' + c.codePointAt(0).toString(16) + '}').join(''), inspect: require('util').inspect(flag).slice(1, -1),
    Buffer: require('util').inspect(raw), hex: raw.toString('hex'), base64: raw.toString('base64'), base64url: Buffer.from('abcd' + flag).toString('base64url'),
    'base64 in a URL': encodeURIComponent(Buffer.from('ab' + flag + '?').toString('base64')),
  } }
})
console.log(JSON.stringify(out, null, 1))
