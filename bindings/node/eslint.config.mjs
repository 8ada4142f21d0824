import js from '@eslint/js';
import globals from 'globals';

export default [
  { ignores: ['**/*.ts'] },
  js.configs.recommended,
  {
    files: ['**/*.js'],
    languageOptions: { sourceType: 'commonjs', globals: globals.node },
    rules: {
      eqeqeq: 'error',
      'no-var': 'error',
      'prefer-const': 'error',
      'no-shadow': 'error',
      'no-unused-vars': ['error', { argsIgnorePattern: '^_', varsIgnorePattern: '^_' }],
      'max-lines-per-function': ['error', { max: 60 }],
    },
  },
  { files: ['test/**/*.js', 'examples/**/*.js'], rules: { 'max-lines-per-function': 'off' } },
];
