import js from '@eslint/js'
import globals from 'globals'

export default [
  { ignores: ['node_modules/', '.host/', '.venv/', 'output/'] },
  js.configs.recommended,
  {
    rules: {
      eqeqeq: ['error', 'smart'],
      'no-var': 'error',
      'prefer-const': 'error',
      'no-unused-vars': 'error',
      'no-implicit-globals': 'error',
      'no-eval': 'error',
      'no-implied-eval': 'error',
      'no-new-func': 'error',
      'max-len': ['error', { code: 120, ignoreTemplateLiterals: true, ignoreStrings: true }]
    }
  },
  { files: ['web/**/*.js'], languageOptions: { globals: globals.browser } },
  {
    // What is tested without a page: it must import nothing of the host and touch no global of the page.
    files: ['web/lib/**/*.js'],
    languageOptions: { globals: Object.fromEntries(Object.keys(globals.browser).map((name) => [name, 'off'])) },
    rules: { 'no-restricted-imports': ['error', { patterns: [{ regex: '^(/|\\.\\./)' }] }] }
  },
  { files: ['tests/**/*.js', '*.js'], languageOptions: { globals: { ...globals.node, document: 'readonly' } } }
]
