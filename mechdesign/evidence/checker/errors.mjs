// Why a file has no account: it is none that mechdesign writes, or no check of its kind is written here.

export class Refused extends Error {}

export class NotCovered extends Error {}

export class TooLarge extends NotCovered {}
