// Package shadow compares the responses of two generations of a stage: the one that serves, and another that gets copies of
// a share of the requests, and whose responses go to no client.
//
// It decides which requests may be asked again, asks both generations, compares what they respond by structure, and keeps a
// report. How a generation is reached is the caller's business.
//
// Nothing that a generation does for a shadow may have an effect: Request.check, which every request passes on its way
// to either, allows reads of resources and of documents, and writes that are a dry run.
package shadow
