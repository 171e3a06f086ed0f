export default { test: { include: ['tests/web/**/*.test.js'], environment: 'node' } }
